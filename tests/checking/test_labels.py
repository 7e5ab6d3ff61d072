"""Check the comparison of label maps and of panoptic maps."""
from __future__ import annotations

import pytest
import torch

from mmexport.checking.reduced import FULL
from tests.checking.made import LABELS, PANOPTIC, judge


def test_labels_may_differ_only_where_eager_was_unsure() -> None:
    expected = torch.randint(0, 5, (1, 8, 8), dtype=torch.int32)
    actual, margin = expected.clone(), torch.ones(1, 8, 8)
    actual[0, 0, 0] += 1
    assert not judge(LABELS, expected, actual, evidence={'margin': margin}).passed
    margin[0, 0, 0] = 1.9e-4
    behind = torch.full((1, 2, 8, 8), 9, dtype=torch.int32)
    assert not judge(LABELS, expected, actual, evidence={'margin': margin, 'next': behind}).passed
    behind[0, 1, 0, 0] = actual[0, 0, 0]
    row = judge(LABELS, expected, actual, evidence={'margin': margin, 'next': behind})
    assert row.passed
    assert row.metrics['differing'] == 1
    margin[0, 0, 0] = 2.1e-4
    assert not judge(LABELS, expected, actual, evidence={'margin': margin, 'next': behind}).passed


def test_what_is_no_label_fails_where_eager_was_unsure_too() -> None:
    expected = torch.randint(0, 5, (1, 8, 8), dtype=torch.int32)
    garbage = expected.clone()
    garbage[0, :3] = -7
    unsure = torch.zeros(1, 8, 8)
    unsure[0, 4:] = 1.0
    assert not judge(LABELS, expected, garbage, evidence={'margin': unsure}).passed
    assert not judge(LABELS, expected, garbage, evidence={'margin': 1 + unsure, 'exempt': unsure == 0}).passed


@pytest.mark.parametrize('precision', [FULL, 'float16'])
def test_a_number_that_is_no_label_never_passes(precision: str) -> None:
    expected = torch.randint(0, 5, (1, 64, 64), dtype=torch.int32)
    actual = expected.clone()
    actual[0, :3, :3] = -7
    assert '-7 is no label' in str(judge(LABELS, expected, actual, precision=precision, floors={'labels': 0.5}).reason)


def test_segments_below_zero_are_none_and_unsure_pixels_keep_to_candidates() -> None:
    expected = torch.full((1, 6, 6), 133, dtype=torch.int32)
    expected[0, :3] = 1003
    near = torch.zeros(1, 6, 6)
    near[0, 3] = 1.0
    assert not judge(PANOPTIC, expected, -2 - expected, evidence={'near': near}).passed
    moved = expected.clone()
    moved[0, 3] = 7
    assert judge(PANOPTIC, expected, moved, evidence={'near': near, 'candidates': torch.tensor([[3, 7]])}).passed
    assert not judge(PANOPTIC, expected, moved, evidence={'near': near, 'candidates': torch.tensor([[3, 8]])}).passed


def test_panoptic_survives_renumbering_and_nothing_else() -> None:
    expected = torch.full((1, 6, 6), 133, dtype=torch.int32)
    expected[0, :2], expected[0, 2:4], expected[0, 4:] = 1003, 2003, 3007
    renumbered = expected.clone()
    renumbered[0, :2], renumbered[0, 2:4], renumbered[0, 4:] = 2003, 1003, 5007
    assert judge(PANOPTIC, expected, renumbered).passed
    merged = expected.clone()
    merged[0, 2:4] = 1003
    assert not judge(PANOPTIC, expected, merged).passed
    other_class = expected.clone()
    other_class[0, 4:] = 3008
    assert not judge(PANOPTIC, expected, other_class).passed
    lost = expected.clone()
    lost[0, :2] = 133
    near = torch.zeros(1, 6, 6, dtype=torch.bool)
    assert not judge(PANOPTIC, expected, lost, evidence={'near': near}).passed
    near[0, :2] = True
    assert judge(PANOPTIC, expected, lost, evidence={'near': near}).passed


def test_panoptic_encoding_is_not_only_the_class() -> None:
    expected = torch.full((1, 6, 6), 133, dtype=torch.int32)
    expected[0, :2], expected[0, 2:4] = 1003, 120
    for wrong, value in ((1003, 3), (120, 3120), (133, -867), (133, 1133)):
        actual = expected.clone()
        actual[expected == wrong] = value
        assert not judge(PANOPTIC, expected, actual).passed, (wrong, value)
