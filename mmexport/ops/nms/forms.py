"""Compute which boxes greedy suppression keeps, in the form that a format takes.

The memory does not grow with the square of their number. Boxes are sorted, the best first. A block of them is compared with the boxes
that were kept before and with itself, step after step until nothing changes; then its boxes are kept, and the next block
is processed. The loop ends with the boxes, or when enough are kept. A step is some turns of the inner loop, written out, because exporters
do not all take a loop in a loop.
"""
from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..loops import looped, script_of, scripted

BLOCK = 128


def first_kept(boxes: Tensor, candidates: Tensor, iou_threshold: float, limit: int, offset: int = 0) -> tuple[Tensor, Tensor]:
    """Return the indices (N, limit) of the first boxes that stay, and how many there are (N,); 0 fills up.

    Args:
        boxes: (N, M, 4), x1 y1 x2 y2, in each picture by descending score. Upstream moves boxes of different classes apart before it
            calls its kernel; do the same, for it changes their rounding.
        candidates: (N, M), those that take part.
        iou_threshold: a box goes if its overlap with a better one that stays is over this.
        offset: what is added to widths and heights.
    """
    # A block may begin with the last box.
    padded = torch.cat([boxes, boxes.new_zeros(1, BLOCK, 4).expand(boxes.shape[0], -1, -1)], dim=1)
    taking = torch.cat([candidates, candidates.new_zeros(1, BLOCK).expand(boxes.shape[0], -1)], dim=1)
    positions = torch.arange(taking.shape[1], device=boxes.device)
    end = (taking.any(dim=0) * (positions + 1)).amax(dim=0)
    # One place more than there are: what is not kept is written there.
    index = torch.zeros_like(taking[:, :1], dtype=torch.int64).expand(-1, limit + 1).clone()
    count = torch.zeros_like(index[:, 0])
    threshold, shift = boxes.new_full((), iou_threshold), boxes.new_full((), float(offset))
    state = (torch.zeros_like(end), taking[:, :BLOCK], torch.zeros_like(padded[:, :1]).expand(-1, limit + 1, -1).clone(), index, count)
    if boxes.is_meta:
        return index[:, :limit], count  # How long the loop runs depends on values, and what it returns has one size.
    if scripted('nms'):
        index, count = _scripted()(*state, padded, taking, end, threshold, shift)
    else:
        *_, index, count = looped(_boxes_left, _step_of, state, (padded, taking, end, threshold, shift))
    return index[:, :limit], count


def pairwise(boxes: Tensor, others: Tensor, offset: Tensor) -> Tensor:
    """Return the intersection over union (N, A, B) of boxes (N, A, 4) with others (N, B, 4).

    Of two boxes without area it is zero, so that nothing is suppressed: mmcv divides zero by zero there, and a comparison with the NaN is
    false; in OpenVINO it is true.
    """
    x1, y1, x2, y2 = boxes.unsqueeze(2).unbind(3)
    u1, v1, u2, v2 = others.unsqueeze(1).unbind(3)
    width = (torch.minimum(x2, u2) - torch.maximum(x1, u1) + offset).clamp(min=0.0)
    height = (torch.minimum(y2, v2) - torch.maximum(y1, v1) + offset).clamp(min=0.0)
    shared = width * height
    union = (x2 - x1 + offset) * (y2 - y1 + offset) + (u2 - u1 + offset) * (v2 - v1 + offset) - shared
    return shared / torch.where((union == 0) & (shared == 0), torch.ones_like(union), union)


def _step(start: Tensor, stays: Tensor, kept: Tensor, index: Tensor, count: Tensor, boxes: Tensor, taking: Tensor, threshold: Tensor,
          offset: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the state after one step.

    Args:
        start: where the present block begins.
        stays: which of its boxes stay, as far as is known (N, B).
        kept: the boxes that are kept (N, limit + 1, 4), `index` their places (N, limit + 1), `count` their number (N,).
    """
    limit = kept.shape[1] - 1
    here = start + torch.arange(stays.shape[1], device=start.device)
    block = boxes.index_select(1, here)
    present = torch.arange(kept.shape[1], device=start.device) < count.unsqueeze(1)
    free = taking.index_select(1, here) & ~((pairwise(kept, block, offset) > threshold) & present.unsqueeze(2)).any(dim=1)
    order = torch.arange(stays.shape[1], device=start.device)
    better = (pairwise(block, block, offset) > threshold) & (order.unsqueeze(1) < order)
    # The overlaps, which cost most, serve several turns.
    stay = stays
    for _ in range(4):
        stays, stay = stay, free & ~(better & stay.unsqueeze(2)).any(dim=1)
    settled = (stay == stays).all()
    rank = count.unsqueeze(1) + stay.to(torch.int64).cumsum(dim=1) - 1
    target = torch.where(stay & settled & (rank < limit), rank, torch.full_like(rank, limit))
    kept = kept.scatter(1, target.unsqueeze(2).expand(-1, -1, 4), block)
    index = index.scatter(1, target, here.unsqueeze(0).expand_as(target))
    grown = (count + stay.to(torch.int64).sum(dim=1)).clamp(max=limit)
    return (torch.where(settled, start + stays.shape[1], start), stay, kept, index, torch.where(settled, grown, count))


def _loop(start: Tensor, stays: Tensor, kept: Tensor, index: Tensor, count: Tensor, boxes: Tensor, taking: Tensor, end: Tensor,
          threshold: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
    limit = kept.shape[1] - 1
    while bool((start < end) & (count < limit).any()):
        start, stays, kept, index, count = _step(start, stays, kept, index, count, boxes, taking, threshold, offset)
    return index, count


@cache
def _scripted() -> Any:
    return script_of(_loop)


def _boxes_left(start: Tensor, stays: Tensor, kept: Tensor, index: Tensor, count: Tensor, boxes: Tensor, taking: Tensor, end: Tensor,
                *_: Tensor) -> Tensor:
    return (start < end) & (count < kept.shape[1] - 1).any()


def _step_of(*carried: Tensor) -> tuple[Tensor, ...]:
    # Only the condition reads the end.
    return _step(*carried[:7], *carried[8:])
