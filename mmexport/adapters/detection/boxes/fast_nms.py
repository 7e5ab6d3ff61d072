"""Suppress boxes by fast NMS, for a whole batch; also a box that is suppressed suppresses those after it.

Paper: YOLACT, ICCV 2019. Source: mmdet/models/layers/bbox_nms.py, ``fast_nms``.
"""
from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ....ops.nms.forms import pairwise
from .overlapping import CLOSE


class Ranked(NamedTuple):
    """Hold the best boxes of each class, in descending order of their score."""

    scores: Tensor
    """(N, C, T); zero where there is none."""
    places: Tensor
    """(N, C, T), their positions."""
    boxes: Tensor
    """(N, C, T, 4)"""


def ranked(boxes: Tensor, scores: Tensor, count: int) -> Ranked:
    """Return the best `count` of boxes (N, P, 4) by scores (N, P, C) of each class."""
    values, places = F.pad(scores.transpose(1, 2), (0, count)).topk(count, dim=2)
    places = places.clamp(max=boxes.shape[1] - 1)
    index = places.flatten(1)[..., None].expand(-1, -1, 4)
    return Ranked(values, places, boxes.gather(1, index).unflatten(1, places.shape[1:]))


def stays(ranked: Ranked, threshold: float) -> Tensor:
    """Return which boxes (N, C, T) no better one of their class overlaps by more than `threshold`."""
    rank = torch.arange(ranked.scores.shape[2], device=ranked.scores.device)
    return ~((_overlaps(ranked) > threshold) & (rank[:, None] < rank)).any(dim=2)


def doubtful(ranked: Ranked, threshold: float, slack: Tensor) -> Tensor:
    """Return of which boxes (N, C, T) rounding may change whether they stay: overlaps at the threshold, or scores that nearly tie.

    Args:
        slack: (N, C, T), what a score may be off by.
    """
    overlaps, margin = _overlaps(ranked), slack[..., None] + slack[..., None, :]
    ahead = ranked.scores[..., None] - ranked.scores[..., None, :]
    others = ~torch.eye(ranked.scores.shape[2], dtype=torch.bool, device=slack.device)
    surely = ((overlaps > threshold + CLOSE) & (ahead > margin)).any(dim=2)
    maybe = ((overlaps > threshold - CLOSE) & (ahead >= -margin) & others).any(dim=2)
    return maybe & ~surely


def _overlaps(ranked: Ranked) -> Tensor:
    """Return the overlaps (N, C, T, T) of the boxes of each class."""
    boxes = ranked.boxes.flatten(0, 1)
    return pairwise(boxes, boxes, boxes.new_zeros(())).unflatten(0, ranked.scores.shape[:2])
