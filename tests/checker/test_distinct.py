"""Test that a choice of boxes is right if a greedy suppression by eager's scores could have made it, to the tolerance."""
from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mmexport.checker.compare import compare
from mmexport.checker.comparison import Comparison
from mmexport.checker.rules.distinct import Boxes, wrong_choices

SPECS = [dict(name='places', kind='distinct', dtype='int64'), dict(name='distinct', kind='distinct', dtype='int64')]
OVERLAP = 0.6


def overlap_of(one: Tensor, other: Tensor) -> float:
    sides = (torch.minimum(one[2:], other[2:]) - torch.maximum(one[:2], other[:2])).clamp(min=0)
    areas = [float((box[2:] - box[:2]).prod()) for box in (one, other)]
    return float(sides.prod()) / (sum(areas) - float(sides.prod()))


def greedy(scores: Tensor, boxes: Tensor, overlap: float = OVERLAP) -> list[int]:
    """Return the indices that stay, box by box."""
    kept: list[int] = []
    for index in scores.argsort(descending=True).tolist():
        if scores[index] >= 0 and all(overlap_of(boxes[index], boxes[better]) <= overlap for better in kept):
            kept.append(index)
    return kept


def crowd(seed: int, count: int = 60) -> tuple[Tensor, Tensor]:
    """Return scores and boxes, some of which lie on each other."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(count // 6, 1, 2, generator=generator) + 0.03 * torch.randn(count // 6, 6, 2, generator=generator)
    corners = torch.cat([centres - 0.1, centres + 0.1], dim=2).flatten(0, 1)
    return torch.rand(count, generator=generator), corners


def sample(seed: int, queries: int = 20) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the right choices of one picture and two layers, and the evidence."""
    scores, boxes = crowd(seed)
    places = greedy(scores, boxes)[:queries]
    layer_scores, layer_boxes = zip(*(crowd(seed + layer, 60) for layer in (1, 2)), strict=True)
    distinct = torch.zeros(2, 60, dtype=torch.int64)
    for layer in (0, 1):
        distinct[layer, greedy(layer_scores[layer], layer_boxes[layer])] = 1
    choices = dict(places=torch.tensor([places + [-1] * (queries - len(places))]), distinct=distinct[None])
    return choices, dict(place_scores=scores[None], place_boxes=boxes[None], query_scores=torch.stack(layer_scores)[None],
                         query_boxes=torch.stack(layer_boxes)[None], overlap=torch.tensor([OVERLAP]))


def row_of(expected: dict[str, Tensor], actual: dict[str, Tensor], evidence: dict[str, Tensor]) -> Comparison:
    row, = compare(SPECS, expected, [actual['places'], actual['distinct']], evidence, sample='one', stage='artifact vs eager')
    return row


@pytest.mark.parametrize('seed', range(5))
@pytest.mark.parametrize('queries', [5, 60])
def test_what_a_greedy_suppression_keeps_is_right(seed: int, queries: int) -> None:
    choices, evidence = sample(seed, queries)
    row = row_of(choices, choices, evidence)
    assert row.passed and row.metrics == dict(choices=queries + 120, choices_moved=0)
    assert 0 < int(choices['distinct'].sum()) < 120, 'some of them go'


@pytest.mark.parametrize('seed', range(5))
@pytest.mark.parametrize('overlap', [OVERLAP - 0.1, OVERLAP + 0.1])
def test_another_threshold_is_wrong(seed: int, overlap: float) -> None:
    scores, boxes = crowd(seed)
    seen = Boxes(scores, boxes, OVERLAP, 1e-4)
    assert wrong_choices(seen, torch.tensor(greedy(scores, boxes, overlap)), full=False) > 0


@pytest.mark.parametrize('change', ['a place is lost', 'a place comes twice', 'a place that went', 'no place', 'order', 'filled in between',
                                    'a query is lost', 'a query that went', 'two', 'none'])
def test_another_choice_fails(change: str) -> None:
    choices, evidence = sample(3)
    places, distinct = choices['places'].clone(), choices['distinct'].clone()
    gone = next(index for index in range(60) if index not in greedy(evidence['place_scores'][0], evidence['place_boxes'][0]))
    if change == 'a place is lost':
        places[0, 2:-1] = choices['places'][0, 3:]
        places[0, -1] = -1
    elif change == 'order':
        places[0, [0, 5]] = choices['places'][0, [5, 0]]
    elif change.startswith(('a place', 'no place', 'filled')):
        first = int(places[0, 0])
        places[0, 4] = {'a place comes twice': first, 'a place that went': gone, 'no place': 60, 'filled in between': -1}[change]
    else:
        stays, goes = (int((distinct[0, 1] == kept).nonzero()[0]) for kept in (1, 0))
        changed = {'a query is lost': (stays, 0), 'a query that went': (goes, 1), 'two': (stays, 2), 'none': (slice(None), 0)}[change]
        distinct[0, 1, changed[0]] = changed[1]
    assert not row_of(choices, dict(places=places, distinct=distinct), evidence).passed


def test_of_boxes_that_tie_either_may_stay() -> None:
    boxes = torch.tensor([[0.1, 0.1, 0.4, 0.4], [0.11, 0.1, 0.41, 0.4], [0.6, 0.6, 0.9, 0.9]])
    seen = Boxes(torch.tensor([0.7, 0.7 + 1e-6, 0.2]), boxes, 0.8, 1e-4)
    assert [wrong_choices(seen, torch.tensor(kept), full=False) for kept in ([0, 2], [1, 2])] == [0, 0]
    apart = seen._replace(scores=torch.tensor([0.7, 0.8, 0.2]))
    assert wrong_choices(apart, torch.tensor([0, 2]), full=False) == 1
    # Of an overlap at the threshold neither is wrong.
    near = seen._replace(overlap=overlap_of(boxes[0], boxes[1]))
    assert [wrong_choices(near, torch.tensor(kept), full=False) for kept in ([0, 1, 2], [1, 2])] == [0, 0]


def test_what_comes_after_another_choice_is_not_judged_yet() -> None:
    """The boxes by which the second layer chooses are those of eager's own first one."""
    choices, evidence = sample(1)
    boxes, scores = evidence['query_boxes'], evidence['query_scores']
    boxes[0, 0, :2] = torch.tensor([[0.1, 0.1, 0.4, 0.4], [0.1, 0.1, 0.4, 0.4]]) + 2
    scores[0, 0, :2] = 0.99
    expected = dict(choices, distinct=choices['distinct'].clone())
    expected['distinct'][0, 0, :2] = torch.tensor([1, 0])
    other = dict(expected, distinct=expected['distinct'].clone())
    other['distinct'][0, 0, :2] = torch.tensor([0, 1])
    other['distinct'][0, 1] = 0
    row = row_of(expected, other, evidence)
    assert row.passed and row.metrics['choices_moved'] > 2
    # Where eager follows the first layer, the second one is judged.
    assert not row_of(other, other, evidence).passed
