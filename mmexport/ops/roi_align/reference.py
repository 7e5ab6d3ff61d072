"""Compute mmcv's kernel of RoIAlign, from its definition.

Every region is divided into bins, every bin into a grid of samples; a sample is bilinear. Written with one matrix of bilinear weights by
axis, a region at a time; nothing here is shared with a patch or a form: this kernel judges them.

Paper: Mask R-CNN, arXiv:1703.06870. Signature as in mmcv/ops/csrc/pytorch/pybind.cpp; `aligned` as in detectron2.
"""
from __future__ import annotations

import math

import torch
from torch import Tensor

MAX, AVERAGE = range(2)
# mmcv starts its search for the largest sample here.
LOWEST = -10000.0


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
    for number, (image, *corners) in enumerate(rois.tolist()):
        left, top, right, bottom = (corner * spatial_scale - (0.5 if aligned else 0.0) for corner in corners)
        width, height = right - left, bottom - top
        if aligned and (width < 0 or height < 0):
            raise RuntimeError(f'region {number} has a negative size: {corners}')
        if not aligned:
            width, height = max(width, 1.0), max(height, 1.0)
        down, rows = _weights(top, height, aligned_height, sampling_ratio, feature.shape[2], feature)
        across, columns = _weights(left, width, aligned_width, sampling_ratio, feature.shape[3], feature)
        if not len(down) or not len(across):
            # No sample in a bin: its sum is empty.
            output[number] = 0 if pool_mode == AVERAGE else LOWEST
            continue
        samples = down @ feature[int(image), :, rows, columns].to(down.dtype) @ across.T
        bins = samples.unflatten(1, (aligned_height, -1)).unflatten(3, (aligned_width, -1))
        output[number] = bins.mean((2, 4)) if pool_mode == AVERAGE else bins.amax((2, 4)).clamp(min=LOWEST)


def _weights(start: float, size: float, bins: int, ratio: int, cells: int, feature: Tensor) -> tuple[Tensor, slice]:
    """Return the bilinear weights (bins * samples, cells that are read) along one axis, and which cells these are."""
    count = ratio if ratio > 0 else math.ceil(size / bins)
    samples = torch.arange(bins * count, dtype=torch.float64)
    places = start + (samples // max(count, 1) + (samples % max(count, 1) + 0.5) / max(count, 1)) * (size / bins)
    # Beyond one cell outside of the map a sample is zero; up to there it takes the value of the border.
    inside = (places >= -1) & (places <= cells)
    places = places.clamp(0, cells - 1)
    first, last = (int(places.min()), int(places.max()) + 1) if len(places) else (0, 0)
    read = slice(first, min(last, cells - 1) + 1)
    at = torch.arange(read.start, read.stop, dtype=torch.float64)
    weights = (1 - (places[:, None] - at).abs()).clamp(min=0) * inside[:, None]
    return weights.to(device=feature.device, dtype=feature.dtype if feature.dtype == torch.float64 else torch.float32), read


COMPARED = 'compiled mmcv 2.1.0'
KERNELS = {'roi_align_forward': roi_align_forward}
