"""Compute RoIAlign with lists of the cells that bins read, added up by ``embedding_bag``.

The number of samples of a bin depends on the size of its region, as upstream.

Paper: Mask R-CNN, arXiv:1703.06870. The samples are those of mmcv/ops/csrc/pytorch/cpu/roi_align.cpp.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..level_table import level_table


class Settings(NamedTuple):
    """Hold the options of the op.

    Attributes:
        bins: height and width.
        scales: of each level.
        sampling_ratio: samples by bin and axis; 0 takes as many as the bin has cells.
        aligned: move the region by half a cell, and do not enlarge those smaller than one.
    """

    bins: tuple[int, int]
    scales: tuple[float, ...]
    sampling_ratio: int
    aligned: bool


class Axis(NamedTuple):
    """Hold what the bins of all regions read along one axis, as one list: cells and weights (A,); by bin its start and length (R, B)."""

    cells: Tensor
    weights: Tensor
    start: Tensor
    length: Tensor


def bags(levels: Sequence[Tensor], rois: Tensor, level: Tensor, settings: Settings) -> Tensor:
    """Return the bins (R, C, height, width) of each region.

    Args:
        levels: maps (N, C, h, w).
        rois: (R, 5), number of the image and x1 y1 x2 y2 in the picture's coordinates.
        level: (R,), the map that each region reads.
    """
    table = level_table(levels, rois, level)
    scale = rois.new_tensor(settings.scales)[level]
    corners = rois[:, 1:] * scale[:, None] - (0.5 if settings.aligned else 0.0)
    rows = _axis(corners[:, 1], corners[:, 3], table.height, settings.bins[0], settings)
    columns = _axis(corners[:, 0], corners[:, 2], table.width, settings.bins[1], settings)
    region = _owners(rows.length.sum(dim=1))
    row_cells = table.start[region] + rows.cells * table.width[region]

    length = rows.length[:, :, None] * columns.length[:, None, :]
    bag = _owners(length.flatten())
    offsets = length.flatten().cumsum(dim=0) - length.flatten()
    within = torch.arange(bag.shape[0], device=bag.device) - offsets[bag]
    across = columns.length[:, None, :].expand_as(length).flatten()[bag]
    down = torch.div(within, across, rounding_mode='floor')
    at_row = rows.start[:, :, None].expand_as(length).flatten()[bag] + down
    at_column = columns.start[:, None, :].expand_as(length).flatten()[bag] + within - down * across
    sums = F.embedding_bag(row_cells[at_row] + columns.cells[at_column], table.cells, offsets, mode='sum',
                           per_sample_weights=(rows.weights[at_row] * columns.weights[at_column]).to(table.cells.dtype))
    # Upstream's heads call ``view`` on it, as on the contiguous result of the kernel.
    return sums.unflatten(0, (-1, *settings.bins)).permute(0, 3, 1, 2).contiguous()


def _owners(counts: Tensor) -> Tensor:
    """Return each index as many times as `counts` says."""
    return torch.repeat_interleave(torch.arange(counts.shape[0], device=counts.device), counts)


def _axis(low: Tensor, high: Tensor, cells: Tensor, bins: int, settings: Settings) -> Axis:
    """List the cells that the bins of each region read along one axis; two for each sample.

    Args:
        low, high: ends of the regions, in cells (R,).
        cells: of the map that the region reads (R,).
    """
    size = high - low if settings.aligned else (high - low).clamp(min=1)
    step = size / bins
    count = torch.zeros_like(cells) + settings.sampling_ratio if settings.sampling_ratio else step.ceil().long().clamp(min=0)
    length = (2 * count)[:, None].expand(-1, bins)
    start = (length.flatten().cumsum(dim=0) - length.flatten()).unflatten(0, (-1, bins))
    region_and_bin = _owners(length.flatten())
    region = torch.div(region_and_bin, bins, rounding_mode='floor')
    within = torch.arange(region.shape[0], device=region.device) - start.flatten()[region_and_bin]
    sample = torch.div(within, 2, rounding_mode='floor')
    position = low[region] + (region_and_bin - region * bins) * step[region] + (sample + 0.5) * step[region] / count[region]
    limit = cells[region]
    inside = (position >= -1) & (position <= limit)
    position = torch.minimum(position.clamp(min=0), (limit - 1).to(position))
    first = position.floor()
    second = within - 2 * sample
    share = position - first
    weight = torch.where(second == 0, 1 - share, share) * inside / count[region]
    return Axis(torch.minimum(first.long() + second, limit - 1), weight, start, length)
