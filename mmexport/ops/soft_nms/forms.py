"""Compute which boxes Soft-NMS keeps, in the form that a format takes.

Each step of a loop takes the best box of every picture and lowers the scores of those that overlap it. The loop ends when as many boxes
are kept as are wanted, or when no picture has another one.

Paper: Soft-NMS, arXiv:1704.04503. Source: mmcv/ops/csrc/pytorch/cpu/nms.cpp, ``softnms_cpu``.
"""
from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..loops import looped, script_of, scripted
from ..nms.forms import pairwise

# Ways to lower a score, by mmcv's number.
METHODS = ('naive', 'linear', 'gaussian')
LINEAR = 1


class SoftNms(NamedTuple):
    """Hold how scores are lowered.

    Attributes:
        iou_threshold: an overlap from which on the methods `naive` and `linear` lower a score.
        sigma: of `gaussian`, which multiplies a score by exp(-IoU^2 / sigma).
        min_score: a box stays while its score is at least this; the very first one always stays.
        method: its place in `METHODS`.
        offset: what is added to widths and heights.
    """

    iou_threshold: float = 0.3
    sigma: float = 0.5
    min_score: float = 1e-3
    method: int = LINEAR
    offset: int = 0


def softly_kept(boxes: Tensor, scores: Tensor, candidates: Tensor, settings: SoftNms, limit: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the indices of boxes that stay, and their scores.

    Both are (N, limit), the best first; 0 fills up. The third tensor is how many there are (N,). Of equal scores the first comes first.
    Two boxes without area do not overlap: mmcv divides zero by zero there.

    Args:
        boxes: (N, M, 4), x1 y1 x2 y2; those of different classes are moved apart, see `mmexport.ops.nms.moved_apart`.
        scores: (N, M), not below zero. Let candidates come first: the scripted loop looks no further than the last of them.
        candidates: (N, M), those that take part.
    """
    # One box more, which nothing overlaps: there may be none.
    padded = torch.cat([boxes, boxes.new_zeros(1, 1, 4).expand(boxes.shape[0], -1, -1)], dim=1)
    left = torch.cat([torch.where(candidates, scores, torch.full_like(scores, -1.0)), scores.new_full((1, 1), -1.0).expand(
        scores.shape[0], -1)], dim=1)
    index = torch.zeros_like(left[:, :1], dtype=torch.int64).expand(-1, limit).clone()
    values = torch.zeros_like(left[:, :1]).expand(-1, limit).clone()
    count = torch.zeros_like(index[:, 0])
    step = torch.zeros_like(index[0, 0])
    if boxes.is_meta:
        return index, values, count  # How long the loop runs depends on values, and what it returns has one size.
    numbers = [boxes.new_full((), float(number)) for number in settings]
    state = (step, left, index, values, count)
    if scripted('soft_nms'):
        index, values, count = _scripted()(*state, padded, *numbers)
    else:
        *_, index, values, count = looped(_boxes_left, _step, state, (padded, *numbers))
    return index, values, count


def lowered(overlap: Tensor, threshold: Tensor, sigma: Tensor, method: Tensor) -> Tensor:
    """Return the factors of scores of boxes with this overlap with a better one."""
    over = overlap >= threshold
    ones = torch.ones_like(overlap)
    naive, linear = torch.where(over, torch.zeros_like(overlap), ones), torch.where(over, 1 - overlap, ones)
    return torch.where(method > 1.5, torch.exp(-(overlap * overlap) / sigma), torch.where(method > 0.5, linear, naive))


def _step(step: Tensor, left: Tensor, index: Tensor, values: Tensor, count: Tensor, boxes: Tensor, threshold: Tensor, sigma: Tensor,
          min_score: Tensor, method: Tensor, offset: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Take the best box of every picture that has one."""
    best, place = left.max(dim=1, keepdim=True)
    # A score of -1 is no candidate, or was taken.
    taken = (best >= 0) & ((best >= min_score) | (step == 0))
    here = torch.arange(index.shape[1], device=index.device).unsqueeze(0) == step
    index = torch.where(here & taken, place.expand_as(index), index)
    values = torch.where(here & taken, best.expand_as(values), values)
    count = count + taken[:, 0].to(torch.int64)
    overlap = pairwise(boxes.gather(1, place.unsqueeze(2).expand(-1, -1, 4)), boxes, offset)[:, 0]
    left = torch.where(left >= 0, left * lowered(overlap, threshold, sigma, method), left)
    # Where the best is too low, the others are, too.
    left = torch.where(taken, left.scatter(1, place, -1.0), torch.full_like(left, -1.0))
    return step + 1, left, index, values, count


def _loop(step: Tensor, left: Tensor, index: Tensor, values: Tensor, count: Tensor, boxes: Tensor, threshold: Tensor, sigma: Tensor,
          min_score: Tensor, method: Tensor, offset: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # A head may have ninety thousand places for some hundred candidates.
    end = int(((left >= 0).any(dim=0) * torch.arange(1, left.shape[1] + 1, device=left.device)).max())
    left, boxes = left[:, :end + 1], boxes[:, :end + 1]
    while bool((step < index.shape[1]) & (left >= 0).any()):
        step, left, index, values, count = _step(step, left, index, values, count, boxes, threshold, sigma, min_score, method, offset)
    return index, values, count


@cache
def _scripted() -> Any:
    return script_of(_loop)


def _boxes_left(step: Tensor, left: Tensor, index: Tensor, *_: Tensor) -> Tensor:
    return (step < index.shape[1]) & (left >= 0).any()
