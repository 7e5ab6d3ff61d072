"""Resize masks to the size of the picture in two steps.

Each axis is enlarged by the stride of the masks and cut at the end of the picture; where it is shorter than the picture, for a map of an
odd size lost a line when it was halved, it is enlarged again. Which of them it is, a program with open sizes cannot ask.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def enlarged(values: Tensor, axis: int, size: Any, stride: int, sides: Tensor | None = None) -> Tensor:
    """Return `values` (N, K, h, w) with `size` elements along `axis`.

    Args:
        sides: of pictures with padding, where each ends on this axis (N,): upstream cuts there, and enlarges what is shorter. Elements
            beyond mean nothing.
    """
    cells = torch.arange(values.shape[axis], device=values.device)
    pixels = torch.arange(size, device=values.device)
    longest, end = (cells[-1:] + 1) * stride, pixels[-1:] + 1 if sides is None else sides[:, None]
    # Of what is enlarged by the stride, the place of each pixel; where it is long enough that is the pixel.
    place = ((pixels + 0.5) * (longest / end).clamp(max=1) - 0.5).clamp(min=0)
    if sides is not None:
        place = place.minimum(longest - 1)
    low = place.floor()
    high = (low + 1).minimum(longest - 1)
    first, second = (_at(values, axis, ((each + 0.5) / stride - 0.5).clamp(min=0), cells) for each in (low, high))
    return first + (second - first) * _along(place - low, axis)


def _at(values: Tensor, axis: int, place: Tensor, cells: Tensor) -> Tensor:
    """Return what lies between two cells."""
    low = place.floor()
    high = (low + 1).minimum(cells[-1:])
    first, second = (_picked(values, axis, each.long()) for each in (low, high))
    return first + (second - first) * _along(place - low, axis)


def _picked(values: Tensor, axis: int, index: Tensor) -> Tensor:
    """Return the elements `index` along `axis`, (P,) or of each picture (N, P)."""
    if index.dim() == 1:
        return values.index_select(axis, index)
    moved = values.movedim(axis, 1)
    first = torch.arange(moved.shape[0], device=index.device)[:, None] * moved.shape[1]
    return moved.flatten(0, 1).index_select(0, (index + first).flatten()).unflatten(0, index.shape).movedim(1, axis)


def _along(shares: Tensor, axis: int) -> Tensor:
    """Return shares (P,) or (N, P) as they multiply values (N, K, h, w) along `axis`."""
    shares = shares if shares.dim() == 2 else shares[None]
    return shares[:, None, :, None] if axis == 2 else shares[:, None, None]
