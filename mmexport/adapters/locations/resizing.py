"""Resize masks to the size of the picture in two steps.

Each axis is enlarged by the stride of the masks and cut at the end of the picture; where it is shorter than the picture, for a map of an
odd size lost a line when it was halved, it is enlarged again. Which of them it is, a program with open sizes cannot ask.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def enlarged(values: Tensor, axis: int, size: Any, stride: int) -> Tensor:
    """Return `values` with `size` elements along `axis`."""
    cells = torch.arange(values.shape[axis], device=values.device)
    pixels = torch.arange(size, device=values.device)
    longest = (cells[-1:] + 1) * stride
    # Of what is enlarged by the stride, the place of each pixel; where it is long enough that is the pixel.
    place = ((pixels + 0.5) * (longest / (pixels[-1:] + 1)).clamp(max=1) - 0.5).clamp(min=0)
    low = place.floor()
    high = (low + 1).minimum(longest - 1)
    share = (place - low).view([-1 if dim == axis else 1 for dim in range(values.dim())])
    first, second = (_at(values, axis, ((each + 0.5) / stride - 0.5).clamp(min=0), cells) for each in (low, high))
    return first + (second - first) * share


def _at(values: Tensor, axis: int, place: Tensor, cells: Tensor) -> Tensor:
    """Return what lies between two cells."""
    low = place.floor()
    high = (low + 1).minimum(cells[-1:])
    share = (place - low).view([-1 if dim == axis else 1 for dim in range(values.dim())])
    first, second = (values.index_select(axis, each.long()) for each in (low, high))
    return first + (second - first) * share
