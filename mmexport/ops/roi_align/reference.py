"""Compute mmcv's kernel of RoIAlign, from its definition.

Every region is divided into bins, every bin into a grid of samples; a sample is bilinear. Written with one matrix of bilinear weights by
axis and region; nothing here is shared with a patch or a form: those are tested against this kernel.

Paper: Mask R-CNN, arXiv:1703.06870. Signature as in mmcv/ops/csrc/pytorch/pybind.cpp; `aligned` as in detectron2.
"""
from __future__ import annotations

import torch
from torch import Tensor

MAX, AVERAGE = range(2)
# mmcv starts its search for the largest sample here.
LOWEST = -10000.0
TOGETHER = 64


def roi_align_forward(feature: Tensor, rois: Tensor, output: Tensor, argmax_y: Tensor, argmax_x: Tensor, aligned_height: int,
                      aligned_width: int, spatial_scale: float, sampling_ratio: int, pool_mode: int, aligned: bool) -> None:
    """Write the bins of each region into `output`.

    Args:
        feature: (N, C, H, W).
        rois: (K, 5), index of the image and x1 y1 x2 y2 in the picture's coordinates.
        output: (K, C, aligned_height, aligned_width), in place.
        argmax_y, argmax_x: of training only, left as they are.
        sampling_ratio: samples by bin and axis; 0 takes as many as the bin has cells.
        aligned: move the region by half a cell, and do not enlarge those smaller than one.
    """
    areas = rois.detach().double().cpu()
    left, top, right, bottom = (areas[:, 1:] * spatial_scale - (0.5 if aligned else 0.0)).unbind(dim=1)
    width, height = right - left, bottom - top
    if aligned and bool(((width < 0) | (height < 0)).any()):
        number = int(((width < 0) | (height < 0)).nonzero()[0, 0])
        raise RuntimeError(f'region {number} has a negative size: {rois[number, 1:].tolist()}')
    if not aligned:
        width, height = width.clamp(min=1.0), height.clamp(min=1.0)
    down = _weights(top, height, aligned_height, sampling_ratio, feature.shape[2], feature)
    across = _weights(left, width, aligned_width, sampling_ratio, feature.shape[3], feature)
    for number, image in enumerate(areas[:, 0].int().tolist()):
        (by_row, rows), (by_column, columns) = down[number], across[number]
        if not by_row.shape[1] or not by_column.shape[1]:
            # No sample in a bin: its sum is empty.
            output[number] = 0 if pool_mode == AVERAGE else LOWEST
            continue
        cells = feature[image, :, rows, columns].to(by_row.dtype)
        if pool_mode == AVERAGE:
            output[number] = by_row.mean(1) @ cells @ by_column.mean(1).T
        else:
            samples = by_row.flatten(0, 1) @ cells @ by_column.flatten(0, 1).T
            bins = samples.unflatten(1, (aligned_height, -1)).unflatten(3, (aligned_width, -1))
            output[number] = bins.amax((2, 4)).clamp(min=LOWEST)


def _weights(starts: Tensor, sizes: Tensor, bins: int, ratio: int, cells: int, feature: Tensor) -> list[tuple[Tensor, slice]]:
    """Return by region the bilinear weights (bins, samples, cells that are read) along one axis, and which cells these are.

    Regions with as many samples are computed together, some at a time for the memory.
    """
    counts = torch.full_like(sizes, ratio) if ratio > 0 else (sizes / bins).ceil()
    dtype = feature.dtype if feature.dtype == torch.float64 else torch.float32
    every = torch.arange(cells, dtype=torch.float64)
    weights: dict[int, tuple[Tensor, slice]] = {}
    for count in counts.unique().int().tolist():
        step = (torch.arange(count, dtype=torch.float64) + 0.5) / max(count, 1)
        for regions in (counts == count).nonzero()[:, 0].split(TOGETHER):
            positions = torch.arange(bins, dtype=torch.float64)[:, None] + step
            positions = starts[regions, None, None] + positions * (sizes[regions] / bins)[:, None, None]
            # Beyond one cell outside of the map a sample is zero; up to there it takes the value of the border.
            inside = (positions >= -1) & (positions <= cells)
            positions = positions.clamp(0, cells - 1)
            together = ((1 - (positions[..., None] - every).abs()).clamp(min=0) * inside[..., None]).to(feature.device, dtype)
            first = positions.amin((1, 2)).int().tolist() if count else [0] * len(regions)
            last = positions.amax((1, 2)).int().tolist() if count else [0] * len(regions)
            for number, region in enumerate(regions.tolist()):
                read = slice(first[number], min(last[number] + 1, cells - 1) + 1)
                weights[region] = together[number, :, :, read], read
    return [weights[region] for region in range(len(starts))]


COMPARED = 'compiled mmcv 2.1.0'
KERNELS = {'roi_align_forward': roi_align_forward}
