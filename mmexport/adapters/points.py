"""PointRend's choice of points: where eager itself was undecided which pixels to refine.

A refined pixel has another value than an unrefined one, so a rounding that swaps two equally uncertain pixels is a jump. Only
pixels at the edge of eager's own top k are exempt from comparison, and what they touch when the map is enlarged.
Source: mmseg/models/decode_heads/point_head.py.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .base import answering
from .evidence import LOGIT_TOLERANCE

Choice = tuple[Tensor, int, float]


@contextmanager
def recorded_points(head: Any) -> Iterator[list[Choice]]:
    """Note each subdivision step's uncertainty (N, h, w), its number of points and the scale of the logits; nothing is changed."""
    choices: list[Choice] = []
    if not hasattr(head, 'get_points_test'):
        yield choices
        return
    original = head.get_points_test

    def noting(seg_logits: Tensor, uncertainty_func: Callable[[Tensor], Tensor], cfg: Any) -> Any:
        choices.append((uncertainty_func(seg_logits)[:, 0], int(cfg.subdivision_num_points), float(seg_logits.abs().max())))
        return original(seg_logits, uncertainty_func, cfg)

    with answering(head, 'get_points_test', noting):
        yield choices


def points_at_the_edge(choices: list[Choice]) -> Tensor:
    """(N, h, w) bool at the last step's size."""
    edge: Tensor | None = None
    for uncertainty, count, scale in choices:
        touched = torch.zeros_like(uncertainty, dtype=torch.bool) if edge is None else _enlarged(edge, uncertainty)
        edge = touched | _undecided(uncertainty, count, scale, touched)
    assert edge is not None
    return _grown(edge)


def _undecided(uncertainty: Tensor, count: int, scale: float, touched: Tensor) -> Tensor:
    """Pixels around the k-th place: closer to it than two logits can move, or than the pixels touched before can shift it."""
    flat = uncertainty.flatten(1)
    if count >= flat.shape[1]:
        return torch.zeros_like(touched)
    ranked = flat.sort(dim=1, descending=True).values
    shift = int(touched.flatten(1).sum(dim=1).max())
    upper = ranked[:, max(count - 1 - shift, 0)]
    lower = ranked[:, min(count + shift, flat.shape[1] - 1)]
    slack = 2 * LOGIT_TOLERANCE * scale
    near = (flat <= upper[:, None] + slack) & (flat >= lower[:, None] - slack)
    return near.view_as(uncertainty)


def _enlarged(edge: Tensor, like: Tensor) -> Tensor:
    return F.interpolate(_grown(edge)[:, None].float(), size=like.shape[-2:], mode='nearest')[:, 0].bool()


def _grown(edge: Tensor) -> Tensor:
    """One pixel in every direction: what bilinear enlarging mixes."""
    return F.max_pool2d(edge[:, None].float(), 3, stride=1, padding=1)[:, 0].bool()
