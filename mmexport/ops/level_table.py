"""Join the maps of several levels to one table of cells."""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class LevelTable(NamedTuple):
    """Hold the cells of all maps (A, C), and of each region where its own begins.

    Attributes:
        cells: row by row, image by image, level by level.
        start: the first cell of the image that a region reads, in the map of its level (R,).
        height, width: of that map (R,).
    """

    cells: Tensor
    start: Tensor
    height: Tensor
    width: Tensor


def level_table(levels: Sequence[Tensor], rois: Tensor, level: Tensor) -> LevelTable:
    """Return the table of maps.

    Args:
        levels: maps (N, C, h, w).
        rois: regions (R, 5), the number of the image first.
        level: the map that each region reads (R,).
    """
    sizes = torch.stack([torch.stack([rois.new_zeros(()) + side for side in (part.shape[0], *part.shape[2:])]) for part in levels]).long()
    cells = torch.cat([part.permute(0, 2, 3, 1).reshape(-1, part.shape[1]) for part in levels])
    before = sizes.prod(dim=1).cumsum(dim=0) - sizes.prod(dim=1)
    _, height, width = sizes[level].unbind(dim=1)
    return LevelTable(cells, before[level] + rois[:, 0].long() * height * width, height, width)
