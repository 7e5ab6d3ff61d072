"""List for each box the others that its suppression may depend on: those whose overlap with it is over the threshold, or nearly so."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ....ops.nms.forms import pairwise
from ...specs import LOGIT_TOLERANCE
from .candidates import Candidates

# Of the overlap of two boxes that each move by the tolerance.
CLOSE = 4 * LOGIT_TOLERANCE
# Of a coordinate: two units in the last place of float32, relative.
ROUNDING = 2.4e-7
# Boxes that are compared with others at once.
BLOCK = 128


class Overlapping(NamedTuple):
    """Hold what is known of the boxes that overlap one, each an array (R,).

    Attributes:
        index: their places.
        over: their overlap is over the threshold, and `surely_over` where neither rounding nor a tie changes that.
        near: their scores are too near to tell which is better.
        at_border: their overlap is at the threshold.
        counts: they are candidates at all.
    """

    index: Any
    over: Any
    surely_over: Any
    near: Any
    at_border: Any
    counts: Any


def overlapping(boxes: Tensor, rows: Candidates, slack: Tensor, threshold: float, offset: float,
                moved: float) -> Iterator[tuple[int, Overlapping]]:
    """Give each box that has any, in order of its place, with the others.

    Args:
        boxes: (M, 4) as they are compared; boxes of different classes may be moved apart.
        rows: their scores, and which of them count.
        slack: (M,) what a score may be off by.
        offset: what is added to widths and heights.
        moved: by how much a coordinate may be off.
    """
    if not len(boxes):
        return
    boxes, scores, slack, valid = boxes.cpu(), rows.scores.cpu(), slack.cpu(), rows.valid.cpu()
    # Two boxes that lie further apart than this have no overlap, however they are rounded.
    reach = 4 * moved + offset + LOGIT_TOLERANCE * float(rows.boxes.abs().max())
    parts = []
    for block in boxes[:, 0].argsort().split(BLOCK):
        lowest, highest = boxes[block, 0].min() - reach, boxes[block, 2].max() + reach
        others = ((boxes[:, 2] >= lowest) & (boxes[:, 0] <= highest)).nonzero()[:, 0]
        parts.append(_compared(boxes, scores, slack, valid, block, others, (threshold, offset, moved, reach)))
    joined = [np.concatenate(part) for part in zip(*parts, strict=True)]
    order = np.lexsort((joined[1], joined[0]))
    joined = [part[order] for part in joined]
    places, starts = np.unique(joined[0], return_index=True)
    for number, (row, start) in enumerate(zip(places.tolist(), starts, strict=True)):
        end = starts[number + 1] if number + 1 < len(starts) else len(order)
        yield int(row), Overlapping(*(part[start:end] for part in joined[1:]))


def _compared(boxes: Tensor, scores: Tensor, slack: Tensor, valid: Tensor, block: Tensor, others: Tensor,
              limits: tuple[float, float, float, float]) -> tuple[Any, ...]:
    """Return the pairs of `block` and `others` that matter: the place of one, and what `Overlapping` has of the other."""
    threshold, offset, moved, reach = limits
    overlap = pairwise(boxes[None, block], boxes[None, others], boxes.new_tensor(offset))[0]
    close = slack_of_overlaps(boxes[block], boxes[others], moved)
    matters = (overlap > threshold - close) & (block[:, None] != others)
    if bool((close >= threshold).any()):
        # At a threshold of 0, boxes that touch are at it, and those that lie apart are not.
        matters &= _gaps(boxes[block], boxes[others]) <= reach
    one, other = matters.nonzero().unbind(dim=1)
    overlap, close, row, index = overlap[one, other], close[one, other], block[one], others[other]
    near = (scores[row] - scores[index]).abs() <= slack[row] + slack[index]
    pairs = (row, index, overlap > threshold, (overlap > threshold + close) & ~near, near, (overlap - threshold).abs() < close,
             valid[index])
    return tuple(part.numpy() for part in pairs)


def _gaps(boxes: Tensor, others: Tensor) -> Tensor:
    """Return how far boxes (A, B) lie apart, in the direction in which they do most; below zero where they overlap."""
    return (torch.maximum(boxes[:, None, :2], others[:, :2]) - torch.minimum(boxes[:, None, 2:], others[:, 2:])).amax(dim=2)


def slack_of_overlaps(boxes: Tensor, others: Tensor, moved: float) -> Tensor:
    """Return by how much the overlaps (A, B) change where the sides of both boxes do."""
    sides, other_sides = ((part[:, 2:] - part[:, :2]).clamp(min=0) for part in (boxes, others))
    half_perimeters = torch.minimum(sides.sum(dim=1)[:, None], other_sides.sum(dim=1))
    areas = torch.maximum(sides.prod(dim=1)[:, None], other_sides.prod(dim=1))
    return CLOSE + 4 * moved * half_perimeters / areas.clamp(min=moved ** 2)
