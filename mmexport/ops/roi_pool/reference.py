"""Compute mmcv's kernel of RoIPool, from its definition.

mmcv has it on CUDA only. Paper: Fast R-CNN, arXiv:1504.08083. Signature as in mmcv/ops/csrc/pytorch/pybind.cpp.
"""
from __future__ import annotations

import torch
from torch import Tensor


def roi_pool_forward(feature: Tensor, rois: Tensor, output: Tensor, argmax: Tensor, pooled_height: int, pooled_width: int,
                     spatial_scale: float) -> None:
    """Write the largest value of each bin of each region into `output`.

    Args:
        feature: (N, C, H, W).
        rois: (K, 5), index of the image and x1 y1 x2 y2; the last pixel belongs to the region.
        output: (K, C, pooled_height, pooled_width), in place; an empty bin is 0.
        argmax: of the same shape, the cell of the map that has it; -1 for an empty bin.
    """
    height, width = feature.shape[2:]
    for number, roi in enumerate(rois):
        # Sizes in the dtype of the regions: a border at a whole cell belongs to one bin or to two.
        start, end = roi[1:3] * spatial_scale, (roi[3:] + 1) * spatial_scale
        if bool((end <= start).any()):
            continue
        columns = _bins(start[0], end[0], pooled_width, width)
        rows = _bins(start[1], end[1], pooled_height, height)
        for y, (top, bottom) in enumerate(rows):
            for x, (left, right) in enumerate(columns):
                if bottom <= top or right <= left:
                    output[number, :, y, x], argmax[number, :, y, x] = 0, -1
                    continue
                largest, index = feature[int(roi[0]), :, top:bottom, left:right].flatten(1).max(1)
                output[number, :, y, x] = largest
                argmax[number, :, y, x] = ((top + index // (right - left)) * width + left + index % (right - left)).to(argmax.dtype)


def _bins(start: Tensor, end: Tensor, count: int, cells: int) -> list[tuple[int, int]]:
    """Return first and last cell, exclusive, of each bin along one axis."""
    steps = torch.arange(count + 1, dtype=start.dtype, device=start.device) * ((end - start) / count) + start
    first, last = steps[:-1].floor().clamp(0, cells), steps[1:].ceil().clamp(0, cells)
    return list(zip(first.int().tolist(), last.int().tolist(), strict=True))


# Compiled mmcv has no such kernel for a CPU.
COMPARED = 'its definition, written as loops'
KERNELS = {'roi_pool_forward': roi_pool_forward}
