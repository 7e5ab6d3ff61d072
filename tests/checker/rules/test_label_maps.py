"""Check the comparison of label maps and of panoptic maps."""
from __future__ import annotations

import pytest
import torch

from mmexport.checker.reduced import FULL
from mmexport.checker.rules.label_maps import compare_labels, compare_panoptic, renamed_after
from tests.checker.made import LABELS, PANOPTIC, judge


def test_labels_may_differ_where_margin_is_small() -> None:
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


def test_invalid_label_fails_where_margin_is_small() -> None:
    expected = torch.randint(0, 5, (1, 8, 8), dtype=torch.int32)
    garbage = expected.clone()
    garbage[0, :3] = -7
    unsure = torch.zeros(1, 8, 8)
    unsure[0, 4:] = 1.0
    assert not judge(LABELS, expected, garbage, evidence={'margin': unsure}).passed
    assert not judge(LABELS, expected, garbage, evidence={'margin': 1 + unsure, 'exempt': unsure == 0}).passed


@pytest.mark.parametrize('precision', [FULL, 'float16'])
def test_negative_label_fails(precision: str) -> None:
    expected = torch.randint(0, 5, (1, 64, 64), dtype=torch.int32)
    actual = expected.clone()
    actual[0, :3, :3] = -7
    assert '-7 is no label' in str(judge(LABELS, expected, actual, precision=precision, floors={'labels': 0.5}).reason)


def test_panoptic_values_are_limited_to_candidates() -> None:
    expected = torch.full((1, 6, 6), 133, dtype=torch.int32)
    expected[0, :3] = 1003
    near = torch.zeros(1, 6, 6)
    near[0, 3] = 1.0
    assert not judge(PANOPTIC, expected, -2 - expected, evidence={'near': near}).passed
    moved = expected.clone()
    moved[0, 3] = 7
    assert judge(PANOPTIC, expected, moved, evidence={'near': near, 'candidates': torch.tensor([[3, 7]])}).passed
    assert not judge(PANOPTIC, expected, moved, evidence={'near': near, 'candidates': torch.tensor([[3, 8]])}).passed


def test_panoptic_allows_renumbered_instances_only() -> None:
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


def test_panoptic_compares_the_whole_encoding() -> None:
    expected = torch.full((1, 6, 6), 133, dtype=torch.int32)
    expected[0, :2], expected[0, 2:4] = 1003, 120
    for wrong, value in ((1003, 3), (120, 3120), (133, -867), (133, 1133)):
        actual = expected.clone()
        actual[expected == wrong] = value
        assert not judge(PANOPTIC, expected, actual).passed, (wrong, value)


def test_label_map_metrics() -> None:
    expected = torch.arange(32, dtype=torch.int32).view(1, 4, 8) % 4
    actual, margin = expected.clone(), torch.ones(1, 4, 8)
    actual[0, 0, :3] = (actual[0, 0, :3] + 1) % 4
    margin[0, 0, 0], margin[0, 0, 1], margin[0, 3, 7] = 1e-5, 2e-4, 0.0
    result = compare_labels(expected, actual, {'margin': margin}, 1e-4)
    assert result == dict(max_abs=None, beyond=2 / 32, metrics={
        'labels': 4, 'pixel_agreement': pytest.approx(29 / 32), 'differing': 3, 'differing_clearly': 2, 'near_share': 2 / 32})


def test_next_and_exempt_limit_allowed_labels() -> None:
    expected = torch.zeros(1, 2, 4, dtype=torch.int32)
    expected[0, 1] = 1
    actual = expected.clone()
    actual[0, 0, 0] = 1
    unsure = torch.ones(1, 2, 4)
    unsure[0, 0, 0] = 0.0
    behind = torch.full((1, 1, 2, 4), 7, dtype=torch.int32)
    exempt = (unsure == 0).float()

    def beyond(**evidence: torch.Tensor) -> float:
        return float(compare_labels(expected, actual, evidence, 1e-4)['beyond'])

    assert beyond(margin=unsure, next=behind) == 1 / 8
    assert beyond(margin=unsure, next=behind, exempt=exempt) == 0
    assert beyond(exempt=exempt) == 0
    actual[0, 0, 0] = 7
    assert beyond(margin=unsure, next=behind) == 0
    assert beyond(exempt=exempt) == beyond(margin=unsure) == 1 / 8


def test_negative_labels_of_eager_are_allowed() -> None:
    expected = torch.tensor([[[-1, 0, 1, 2]]], dtype=torch.int32)
    assert 'problem' not in compare_labels(expected, expected, {}, 1e-4)
    assert compare_labels(expected.clamp_min(0), expected, {}, 1e-4)['problem'] == '-1 is no label'


def test_at_most_half_of_the_pixels_may_be_unsure() -> None:
    expected, near = torch.full((1, 2, 4), 1003, dtype=torch.int32), torch.zeros(1, 2, 4)
    near[0, 0] = 1
    assert 'problem' not in compare_panoptic(expected, expected, {'near': near})
    near[0, 1, 0] = 1
    result = compare_panoptic(expected, expected, {'near': near})
    assert result['problem'] == 'eager is unsure of 62% of the pixels: too few are left to compare'
    assert result['metrics']['near_share'] == 5 / 8


def test_panoptic_metrics() -> None:
    expected = torch.full((2, 2, 4), 133, dtype=torch.int32)
    expected[0, 0], expected[0, 1, :2], expected[1, 0] = 1003, 2003, 1005
    actual = expected.clone()
    actual[1] = 133
    result = compare_panoptic(expected, actual, {'near': expected == 1005, 'borderline': torch.tensor([[True, False], [True, True]])})
    assert result == dict(max_abs=None, beyond=0.0, metrics={
        'segments': 5, 'segments_found': 4, 'segments_at_a_threshold': 3, 'pixel_agreement': 0.75, 'differing': 4,
        'differing_clearly': 0, 'near_share': 0.25})
    assert compare_panoptic(expected, actual, {})['metrics']['segments_at_a_threshold'] == 0
    assert compare_panoptic(expected, -expected, {}) == dict(problem='-2003 is no segment', metrics={})


def test_unsure_pixel_takes_present_or_candidate_class() -> None:
    expected = torch.full((1, 2, 4), 1003, dtype=torch.int32)
    expected[0, 0, 1] = 5
    near = torch.zeros(1, 2, 4)
    near[0, 0, 0] = 1
    for moved, wrong in ((5, 0.0), (2007, 0.0), (8, 1 / 8)):
        actual = expected.clone()
        actual[0, 0, 0] = moved
        assert compare_panoptic(expected, actual, {'near': near, 'candidates': torch.tensor([[7, 133]])})['beyond'] == wrong, moved


def test_instances_are_renamed_by_largest_overlap() -> None:
    expected = torch.tensor([[[1003, 1003, 1003, 2003, 2003, 5, 133, 1004]]], dtype=torch.int32)
    actual = torch.tensor([[[7003, 7003, 8003, 8003, 8003, 5, 5, 3004]]], dtype=torch.int32)
    # 8003 covers 2003 more than 1003; the pixel of void that became stuff is no label of eager's.
    assert renamed_after(expected, actual).tolist() == [[[1003, 1003, 2003, 2003, 2003, 5, -7, 1004]]]
    # Of two that cover one, the larger has it, and the other is none.
    split = torch.tensor([[[7003, 7003, 8003, 9003, 9003, 5, 133, 9004]]], dtype=torch.int32)
    assert renamed_after(expected, split).tolist() == [[[1003, 1003, -1, 2003, 2003, 5, 133, 1004]]]
    # And of one that covers two, it has the number of the larger, once.
    joined = torch.tensor([[[7003, 7003, 7003, 7003, 7003, 5, 133, 9005]]], dtype=torch.int32)
    assert renamed_after(expected, joined).tolist() == [[[1003, 1003, 1003, 1003, 1003, 5, 133, -1]]]
    assert renamed_after(expected, expected) is not expected
    assert torch.equal(renamed_after(expected, expected), expected)


def test_instance_numbers_start_at_one_thousand() -> None:
    """Below it are classes, which must be equal as they are: class 0 of instance 1 is 1000, and class 999 is no instance."""
    expected = torch.tensor([[[1000, 1000, 999, 999]]], dtype=torch.int32)
    assert renamed_after(expected, torch.tensor([[[2000, 2000, 999, 998]]], dtype=torch.int32)).tolist() == [[[1000, 1000, 999, -1000]]]


def test_class_zero_has_a_first_instance() -> None:
    expected = torch.full((1, 1, 12), 1000)
    expected[0, 0, 10:] = 0
    actual = expected.clone()
    actual[0, 0, :7] = 2000
    result = compare_panoptic(expected, actual, {})
    # The larger part is the instance; the smaller one, whose number is that of the instance, is none of eager's.
    assert renamed_after(expected, actual).tolist() == [[[1000] * 7 + [-1] * 3 + [0] * 2]]
    assert result['metrics']['differing'] == 3


def test_class_zero_is_a_segment() -> None:
    stuff = torch.zeros(1, 2, 3, dtype=torch.int64)
    assert compare_panoptic(stuff, stuff, {})['beyond'] == 0.0


def test_margin_and_exempt_excuse_separate_pixels() -> None:
    expected = torch.tensor([[[0, 0, 1, 1]]], dtype=torch.int32)
    actual = torch.tensor([[[7, 1, 1, 1]]], dtype=torch.int32)
    evidence = dict(margin=torch.tensor([[[0.0, 1.0, 1.0, 1.0]]]), next=torch.full((1, 1, 1, 4), 7, dtype=torch.int32),
                    exempt=torch.tensor([[[0.0, 1.0, 0.0, 0.0]]]))
    result = compare_labels(expected, actual, evidence, 1e-4)
    assert result['beyond'] == 0.0
    assert result['metrics']['near_share'] == 0.5


def test_invalid_labels_have_no_metrics() -> None:
    zero = torch.zeros(1, 2, 2, dtype=torch.int32)
    assert compare_labels(zero, zero - 1, {}, 1e-4) == dict(problem='-1 is no label', metrics={})
    assert compare_panoptic(zero, zero - 1, {}) == dict(problem='-1 is no segment', metrics={})
