"""Exempt pixels near the top-k cut of PointRend's choice of points from comparison. They are recorded while eager runs.

A refined pixel has another value than an unrefined one, so a rounding that swaps two equally uncertain pixels is a jump. Only
pixels at the edge of eager's own top k are exempt from comparison, and what is mixed from them when the map is enlarged.
Source: mmseg/models/decode_heads/point_head.py.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...utils.override import override
from ..specs import LOGIT_TOLERANCE

Choice = tuple[Tensor, int, float]


@contextmanager
def recorded_points(head: Any) -> Iterator[list[Choice]]:
    """Record the uncertainty (N, h, w) of each subdivision step. Its number of points and the scale of the logits are recorded too."""
    choices: list[Choice] = []
    if not hasattr(head, 'get_points_test'):
        yield choices
        return
    original = head.get_points_test

    def noting(seg_logits: Tensor, uncertainty_func: Callable[[Tensor], Tensor], cfg: Any) -> Any:
        choices.append((uncertainty_func(seg_logits)[:, 0], int(cfg.subdivision_num_points), float(seg_logits.abs().max())))
        return original(seg_logits, uncertainty_func, cfg)

    with override(head, 'get_points_test', noting):
        yield choices


def points_at_the_edge(choices: list[Choice]) -> Tensor:
    """Return the pixels near the top-k cut: (N, h, w) bool at the last step's size."""
    edge: Tensor | None = None
    for uncertainty, count, scale in choices:
        touched = torch.zeros_like(uncertainty, dtype=torch.bool) if edge is None else mixed_from(edge, uncertainty.shape[-2:])
        edge = touched | torch.stack([_undecided(*image, count, scale) for image in zip(uncertainty, touched, strict=True)])
    assert edge is not None
    return edge


def mixed_from(edge: Tensor, size: Sequence[int]) -> Tensor:
    """Return the pixels (N, H, W) that bilinear resizing computes from `edge` pixels (N, h, w)."""
    mixes = [F.interpolate(edge[:, None].float(), size=tuple(size), mode='bilinear', align_corners=aligned)[:, 0] > 0
             for aligned in (False, True)]
    return mixes[0] | mixes[1]


def _undecided(uncertainty: Tensor, touched: Tensor, count: int, scale: float) -> Tensor:
    """Return the pixels (h, w) that rounding can move across the k-th place. They are of one image.

    Touched pixels may be anywhere, so of the others between k less their number and k are chosen: the threshold lies between the two
    values at those ranks. An uncertainty is a difference of two logits, and the threshold is one too, so they approach by four.
    """
    others = uncertainty[~touched].sort(descending=True).values
    if count >= uncertainty.numel() or not len(others):
        return torch.zeros_like(touched)
    strictest = others[min(max(count - int(touched.sum()) - 1, 0), len(others) - 1)]
    mildest = others[min(count, len(others) - 1)]
    slack = 4 * LOGIT_TOLERANCE * scale
    return (uncertainty <= strictest + slack) & (uncertainty >= mildest - slack)
