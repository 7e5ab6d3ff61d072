"""Check the rule by which a row passes."""
from __future__ import annotations

import torch

from mmexport.checking.compare import lost_of
from mmexport.checking.comparison import Comparison
from tests.checking.made import LABELS, LOGITS, judge, judge_rows


def test_a_continuous_model_must_hold_the_plain_maximum() -> None:
    expected = torch.randn(1, 4, 8, 8)
    assert judge(LOGITS, expected, expected + 0.9e-4 * expected.abs().max()).passed
    one_pixel = expected.clone()
    one_pixel[0, 0, 0, 0] += 1.1e-4 * float(expected.abs().max())
    assert not judge(LOGITS, expected, one_pixel).passed


def test_above_a_floor_few_jumps_pass_and_large_ones_never() -> None:
    expected = torch.randn(1, 4, 10, 10)
    scale = float(expected.abs().max())
    jumps = expected.clone()
    jumps[0, 0, 0, :6] += 5e-3 * scale  # 6% of the pixels
    assert judge(LOGITS, expected, jumps, floors={'logits': 0.05}).passed
    assert not judge(LOGITS, expected, jumps, floors={'logits': 0.03}).passed
    assert not judge(LOGITS, expected, jumps).passed
    jumps[0, 0, 0, 0] += 1e-2 * scale
    assert 'worst' in str(judge(LOGITS, expected, jumps, floors={'logits': 0.05}).reason)
    everywhere = expected + 2e-4 * scale
    assert 'median' in str(judge(LOGITS, expected, everywhere, floors={'logits': 1.0}).reason)


def test_decisions_get_no_slack_beyond_the_noise() -> None:
    expected = torch.randint(0, 5, (1, 10, 10), dtype=torch.int32)
    actual = expected.clone()
    actual[0, 0, :2] += 1
    assert not judge(LABELS, expected, actual, floors={'labels': 1e-7}).passed
    assert judge(LABELS, expected, actual, floors={'labels': 0.02}).passed


def test_a_lost_instance_is_not_excused_by_what_noise_does_to_others() -> None:
    name = judge_rows('nothing').output
    assert judge_rows('score', floors={name: 0.5}).passed
    assert 'lost or new' in str(judge_rows('row', floors={name: 0.5}).reason)
    assert judge_rows('row', floors={name: 0.5, lost_of(name): 0.34}).passed


def test_a_row_survives_json() -> None:
    row = judge(LOGITS, torch.randn(1, 2, 3, 3), torch.randn(1, 2, 3, 3))
    assert Comparison.from_dict(row.as_dict()) == row
