"""Take the largest cell of each bin of a region.

A loop reads one cell of every bin at a time. It ends with the largest bin, so that the memory does not grow with the regions' sizes.

Paper: Fast R-CNN, arXiv:1504.08083. Source: mmcv/ops/csrc/common/cuda/roi_pool_cuda_kernel.cuh.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..level_table import level_table
from ..loops import looped, script_of, scripted


class PoolSettings(NamedTuple):
    """Hold the options of the op: the number of bins, height and width, and the scale of each level."""

    bins: tuple[int, int]
    scales: tuple[float, ...]


class Axis(NamedTuple):
    """Hold the first cell of each bin (R, B), and how many it has."""

    first: Tensor
    length: Tensor


def roi_pool(levels: Sequence[Tensor], rois: Tensor, level: Tensor, settings: PoolSettings) -> Tensor:
    """Return the bins (R, C, height, width) of each region.

    A bin without a cell is zero.

    Args:
        levels: maps (N, C, h, w).
        rois: (R, 5), number of the image and x1 y1 x2 y2 in the picture's coordinates; the last pixel belongs to the region.
        level: (R,), the map that each region reads.
    """
    table = level_table(levels, rois, level)
    start, end = (corner * rois.new_tensor(settings.scales)[level][:, None] for corner in (rois[:, 1:3], rois[:, 3:] + 1))
    rows, columns = (_axis(start[:, axis], end[:, axis], limit, bins)
                     for axis, limit, bins in ((1, table.height, settings.bins[0]), (0, table.width, settings.bins[1])))
    empty = (rows.length[:, :, None] <= 0) | (columns.length[:, None] <= 0) | (end <= start).any(dim=1)[:, None, None]
    width = table.width[:, None, None]
    first = table.start[:, None, None] + rows.first[:, :, None] * width + columns.first[:, None]
    # A bin that is read to its end is read at its last cell again.
    down, across = ((axis.length - 1).clamp(min=0) for axis in (rows, columns))
    grid = torch.broadcast_tensors(first, down[:, :, None] * width, across[:, None], width)
    # There may be no region.
    steps = torch.stack([torch.cat([axis.flatten(), axis.new_zeros(1)]).amax(dim=0) + 1 for axis in (down, across)])
    best = table.cells.index_select(0, first.flatten())
    state = (torch.zeros_like(steps[0]), best)
    others = (table.cells, *(part.flatten() for part in grid), steps)
    if not rois.is_meta:  # How long the loop runs depends on values.
        best = _scripted()(*state, *others) if scripted('roi_pool') else looped(_cells_left, _step, state, others)[1]
    best = torch.where(empty.flatten()[:, None], torch.zeros_like(best), best)
    return best.unflatten(0, (-1, *settings.bins)).permute(0, 3, 1, 2).contiguous()


def _axis(low: Tensor, high: Tensor, cells: Tensor, bins: int) -> Axis:
    """Return the cells of the bins of regions along one axis.

    Args:
        low, high: ends of the regions, in cells (R,).
        cells: of the map that a region reads (R,).
    """
    limit = cells[:, None].to(low)
    edges = torch.arange(bins + 1, device=low.device).to(low) * ((high - low) / bins)[:, None] + low[:, None]
    first, last = (torch.minimum(edge.clamp(min=0), limit).long() for edge in (edges[:, :-1].floor(), edges[:, 1:].ceil()))
    # A bin beyond the map is empty, and must not be read there.
    return Axis(torch.minimum(first, cells[:, None] - 1), last - first)


def _step(turn: Tensor, best: Tensor, cells: Tensor, first: Tensor, down: Tensor, across: Tensor, width: Tensor,
          steps: Tensor) -> tuple[Tensor, Tensor]:
    row = torch.div(turn, steps[1], rounding_mode='floor')
    place = first + torch.minimum(row * width, down) + torch.minimum(turn - row * steps[1], across)
    return turn + 1, torch.maximum(best, cells.index_select(0, place))


def _loop(turn: Tensor, best: Tensor, cells: Tensor, first: Tensor, down: Tensor, across: Tensor, width: Tensor,
          steps: Tensor) -> Tensor:
    while bool(turn < steps[0] * steps[1]):
        turn, best = _step(turn, best, cells, first, down, across, width, steps)
    return best


@cache
def _scripted() -> Any:
    return script_of(_loop)


def _cells_left(turn: Tensor, *others: Tensor) -> Tensor:
    steps = others[-1]
    return turn < steps[0] * steps[1]
