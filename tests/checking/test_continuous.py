"""Check the comparison of logits and probabilities."""
from __future__ import annotations

import torch

from tests.checking.made import LABELS, LOGITS, judge, vacuous_of


def test_points_at_the_edge_are_exempt_and_no_others() -> None:
    expected = torch.randn(1, 2, 6, 6)
    jump = expected.clone()
    jump[0, :, 2, 3] += 1
    exempt = torch.zeros(1, 6, 6, dtype=torch.bool)
    exempt[0, 2, 3] = True
    assert judge(LOGITS, expected, jump, evidence={'exempt': exempt}).passed
    exempt[0, 2, 3], exempt[0, 3, 3] = False, True
    assert not judge(LOGITS, expected, jump, evidence={'exempt': exempt}).passed


def test_a_masked_border_does_not_set_the_scale() -> None:
    """Of its pixels every class is masked, so that none is far behind the best of its pixel."""
    expected = torch.randn(1, 4, 16, 16)
    expected[:, :, :2] = -1e4
    wrong = expected.clone()
    wrong[:, 0, 8:] += 0.3
    assert judge(LOGITS, expected, expected).passed
    assert 'off by' in str(judge(LOGITS, expected, wrong).reason)


def test_a_masked_class_does_not_set_the_scale() -> None:
    expected = torch.randn(1, 4, 6, 6)
    for mask in (-1e9, -100.0):
        masked = expected.clone()
        masked[:, 3] = mask
        assert judge(LOGITS, masked, masked).passed
        wrong = masked.clone()
        wrong[:, 0] += 0.01
        assert 'off by' in str(judge(LOGITS, masked, wrong).reason)
        other = torch.randn(1, 4, 6, 6)
        other[:, 3] = mask
        assert vacuous_of(LOGITS, masked, other) == {}


def test_too_much_exempt_is_no_comparison() -> None:
    expected = torch.randn(1, 2, 6, 6)
    row = judge(LOGITS, expected, expected * 0, evidence={'exempt': torch.ones(1, 6, 6, dtype=torch.bool)})
    assert 'too few are left' in str(row.reason)
    labels = torch.randint(0, 5, (1, 8, 8), dtype=torch.int32)
    assert 'too few are left' in str(judge(LABELS, labels, labels + 1, evidence={'margin': torch.zeros(1, 8, 8)}).reason)
