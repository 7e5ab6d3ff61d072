"""Judge which boxes a greedy suppression kept, by eager's scores and boxes, to the tolerance.

It kept the right ones if none of them overlaps another too much, and each other box overlaps a better one that it kept, or comes after the
last. Where scores or overlaps are equal to the tolerance, several choices are right.
"""
from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# How many of the other boxes are compared at a time with those that were kept.
BLOCK = 4096
# Beyond these a float32 sigmoid says little about its logit.
LEAST, LARGEST = 1e-6, 1 - 1e-6


class Boxes(NamedTuple):
    """Hold the boxes of one picture.

    Attributes:
        scores: (P,), probabilities; below zero of boxes that take no part.
        boxes: (P, 4), x1 y1 x2 y2, as shares of the picture.
        overlap: above it the lesser box goes.
        limit: the tolerance of logits, as a share of the largest, and of sides.
    """

    scores: Tensor
    boxes: Tensor
    overlap: float
    limit: float


def wrong_choices(seen: Boxes, kept: Tensor, full: bool) -> int:
    """Return how many boxes were wrongly kept or left out.

    Args:
        kept: their indices, each once.
        full: there is room for no more: what is no better than the worst of them is left out, too.
    """
    scores = seen.scores.double()
    slack = _slack(scores, seen.limit)
    low, high = _overlaps(seen.boxes[kept], seen.boxes[kept], seen.limit)
    wrong = int((scores[kept] < 0).sum()) + int((low > seen.overlap).fill_diagonal_(False).any(dim=1).sum())
    others = (scores >= 0).index_fill(0, kept, False).nonzero()[:, 0]
    if full and len(kept):
        worst = scores[kept].argmin()
        others = others[scores[others] - slack[others] > scores[kept][worst] + slack[kept][worst]]
    for block in others.split(BLOCK):
        low, high = _overlaps(seen.boxes[block], seen.boxes[kept], seen.limit)
        better = scores[kept] + slack[kept] >= (scores[block] - slack[block])[:, None]
        wrong += int((~((high > seen.overlap) & better).any(dim=1)).sum())
    return wrong


def out_of_order(seen: Boxes, kept: Tensor) -> int:
    """Return how many of `kept` do not come by descending score."""
    scores = seen.scores.double()[kept]
    ordered = scores.sort(descending=True).values
    return int(((scores - ordered).abs() > 2 * _slack(seen.scores.double(), seen.limit)[kept]).sum())


def _slack(scores: Tensor, limit: float) -> Tensor:
    """Return by how much a score may move where its logit moves by `limit` of the largest."""
    bounded = scores.clamp(LEAST, LARGEST)
    return bounded * (1 - bounded) * limit * torch.logit(bounded[scores >= 0]).abs().max() + 1e-6 * bounded


def _overlaps(boxes: Tensor, others: Tensor, moved: float) -> tuple[Tensor, Tensor]:
    """Return the least and the largest IoU (A, B) where each side of both boxes moves by at most `moved`."""
    less, more = (_parts(boxes, others, by) for by in (-moved, moved))
    return less[0] / (more[1] - less[0]).clamp(min=1e-12), (more[0] / (less[1] - more[0]).clamp(min=1e-12)).clamp(max=1.0)


def _parts(boxes: Tensor, others: Tensor, by: float) -> tuple[Tensor, Tensor]:
    """Return the common area (A, B), and the sum of both, of boxes whose sides are moved outwards."""
    change = boxes.new_tensor([-by, -by, by, by]).double()
    one, other = boxes.double() + change, others.double() + change
    sides = (torch.minimum(one[:, None, 2:], other[:, 2:]) - torch.maximum(one[:, None, :2], other[:, :2])).clamp(min=0)
    areas = [(part[:, 2:] - part[:, :2]).clamp(min=0).prod(dim=1) for part in (one, other)]
    return sides.prod(dim=2), areas[0][:, None] + areas[1]
