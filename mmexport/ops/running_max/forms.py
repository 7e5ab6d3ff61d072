"""Compute the largest value so far along an axis: by torch's operator, or by maxima of neighbours that are ever further apart."""
from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..op import form_of

# Distances of neighbours: maps of up to 8192 cells, 32768 pixels at a stride of 4.
STEPS = 13


def running_max(x: Tensor, axis: int, backwards: bool) -> Tensor:
    """Return for each cell of maps (N, C, h, w) the largest value up to it; `backwards`, of it and what follows.

    Args:
        axis: 2 or 3.
    """
    if form_of('running_max') == 'cummax':
        x = x.flip(axis) if backwards else x
        largest = torch.cummax(x, dim=axis).values
        return largest.flip(axis) if backwards else largest
    size = x.shape[axis]
    for step in range(STEPS):
        distance = 1 << step
        sides = [0, distance] if backwards else [distance, 0]
        padded = F.pad(x, sides if axis == 3 else [0, 0, *sides], value=float('-inf'))
        start = distance if backwards else 0
        neighbours = padded[:, :, start:start + size] if axis == 2 else padded[..., start:start + size]
        x = torch.maximum(x, neighbours)
    return x
