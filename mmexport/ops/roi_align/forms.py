"""Choose the form of RoIAlign that a format takes: lists of cells, or one operator a level."""
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..op import form_of
from .bags import Settings, bags
from .operator import define


def roi_align(levels: Sequence[Tensor], rois: Tensor, level: Tensor, settings: Settings) -> Tensor:
    """Return the bins (R, C, height, width) of each region, averages of bilinear samples.

    Args:
        levels: maps (N, C, h, w).
        rois: (R, 5), number of the image and x1 y1 x2 y2 in the picture's coordinates.
        level: (R,), the map that each region reads.
    """
    rois = rois.float()
    return (bags if form_of('roi_align') == 'bags' else _by_operator)(levels, rois, level, settings)


def _by_operator(levels: Sequence[Tensor], rois: Tensor, level: Tensor, settings: Settings) -> Tensor:
    """Call the operator on all regions at each level. In place of those of other levels there is a region of one cell, which is cheap."""
    operator = define()
    spare = rois.new_tensor([0.0, 0.0, 0.0, 1.0, 1.0])
    # Upstream takes no sample of a region without area if the size gives their number; there OpenVINO divides by zero.
    by_size = settings.aligned and not settings.sampling_ratio
    real = ((rois[:, 3:] - rois[:, 1:3]) > 0).all(dim=1) if by_size else torch.ones_like(level, dtype=torch.bool)
    sums: list[Tensor] = []
    for number, feature in enumerate(levels):
        here = ((level == number) & real)[:, None]
        bins = operator(feature, torch.where(here, rois, spare), *settings.bins, settings.scales[number], settings.sampling_ratio,
                        settings.aligned)
        sums.append(torch.where(here[:, :, None, None], bins, torch.zeros_like(bins)))
    return torch.stack(sums).sum(dim=0) if len(sums) > 1 else sums[0]
