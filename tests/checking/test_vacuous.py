"""Check that a comparison that cannot fail is told from one that can."""
from __future__ import annotations

import torch

from mmexport.checking.vacuous import little_change
from tests.checking.made import LABELS, LOGITS, vacuous_of


def test_little_change_is_told_in_words() -> None:
    one, other = torch.randn(1, 20, 6, 6), torch.randn(1, 20, 6, 6)
    assert not little_change(LOGITS, {'logits': one}, {'logits': other}, 1e-4, 20)
    frozen = other.clone()
    frozen[:, :2] = one[:, :2]
    assert '90% of the channels' in little_change(LOGITS, {'logits': one}, {'logits': frozen}, 1e-4, 20)['logits']
    two = torch.randint(0, 2, (1, 20, 20), dtype=torch.int32)
    assert 'only 2 labels' in little_change(LABELS, {'labels': two}, {'labels': 1 - two}, 1e-4, 20)['labels']
    many = torch.arange(400, dtype=torch.int32).view(1, 20, 20) % 5
    assert 'only 0.0% of the pixels' in little_change(LABELS, {'labels': many}, {'labels': many}, 1e-4, 20)['labels']
    assert not little_change(LABELS, {'labels': many}, {'labels': (many + 1) % 5}, 1e-4, 20)


def test_only_what_a_wrong_answer_would_pass_is_vacuous() -> None:
    blank = torch.zeros(1, 20, 20, dtype=torch.int32)
    rare = blank.clone()
    rare[0, 3:5, 3:5] = 1
    # One object in one picture of three: a constant fails there, and so does another picture's answer.
    assert vacuous_of(LABELS, blank, blank, rare) == {}
    assert 'one class' in vacuous_of(LABELS, blank, blank, blank)['labels']
    assert 'a constant' not in vacuous_of(LABELS, rare, rare)['labels']
    assert "another input's answer" in vacuous_of(LABELS, rare, rare)['labels']
    # As much as noise itself moves is no difference that the rule would see.
    assert vacuous_of(LABELS, blank, blank, rare, labels=0.02)
    flat = torch.full((1, 4, 6, 6), 0.3)
    assert 'a constant' in vacuous_of(LOGITS, flat, flat + 1e-6)['logits'] or "another" in vacuous_of(LOGITS, flat, flat + 1e-6)['logits']
    assert vacuous_of(LOGITS, torch.randn(1, 4, 6, 6), torch.randn(1, 4, 6, 6)) == {}


def test_two_inputs_of_one_shape_are_needed() -> None:
    assert 'no two samples' in vacuous_of(LABELS, torch.zeros(1, 6, 6, dtype=torch.int32), torch.ones(1, 8, 8, dtype=torch.int32))['(all)']
