"""Test that a choice among places is right if eager's scores of it are the best ones, in order, to the tolerance."""
from __future__ import annotations

from typing import Any

import pytest
import torch

from mmexport.checker.compare import compare
from mmexport.checker.comparison import Comparison

SPECS = [dict(name='places', kind='places', dtype='int64')]
# The second and the third tie to 1e-6; the fifth is beyond the cut.
SCORES = torch.tensor([[0.1, 4.0, 2.0, 2.000001, -1.0, 0.3]])
BEST = torch.tensor([[1, 3, 2, 5]])


def row_of(actual: Any, scores: torch.Tensor = SCORES) -> Comparison:
    row, = compare(SPECS, {'places': BEST}, [torch.tensor(actual)], {'place_scores': scores}, sample='one', stage='artifact vs eager')
    return row


@pytest.mark.parametrize(('actual', 'moved'), [([[1, 3, 2, 5]], 0), ([[1, 2, 3, 5]], 2)])
def test_places_that_tie_may_change_ranks(actual: list[list[int]], moved: int) -> None:
    row = row_of(actual)
    assert row.passed, row.reason
    assert row.metrics['places_moved'] == moved


@pytest.mark.parametrize('actual', [[3, 1, 2, 5], [1, 3, 2, 0], [1, 3, 3, 5], [1, 2, 2, 5], [1, 3, 2, 6], [1, 3, 2, -1], [0] * 4])
def test_another_choice_fails(actual: list[int]) -> None:
    assert not row_of([actual]).passed


def test_the_limit_is_the_tolerance_of_the_scores_range() -> None:
    assert row_of([[1, 2, 3, 5]], torch.tensor([[0.1, 4.0, 2.0, 2.0004, -1.0, 0.3]])).passed
    assert not row_of([[1, 2, 3, 5]], torch.tensor([[0.1, 4.0, 2.0, 2.0006, -1.0, 0.3]])).passed


def test_scores_that_hardly_differ_are_ranked_all_the_same() -> None:
    scores = -4.6 + 1e-4 * SCORES
    assert row_of([[1, 3, 2, 5]], scores).passed and row_of([[1, 2, 3, 5]], scores).passed
    assert not row_of([[3, 1, 2, 5]], scores).passed
