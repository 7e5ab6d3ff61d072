"""Compute mmcv's kernel of BorderAlign, from its definition.

mmcv has it on CUDA only. Paper: BorderDet, arXiv:2007.11056. Signature as in mmcv/ops/csrc/pytorch/pybind.cpp.
"""
from __future__ import annotations

import torch
from torch import Tensor


def border_align_forward(feature: Tensor, boxes: Tensor, output: Tensor, argmax: Tensor, pool_size: int) -> None:
    """Write the largest of the samples along each side of each box into `output`.

    A side has ``pool_size + 1`` bilinear samples.

    Args:
        feature: (N, 4 * C, H, W): channels for top, left, bottom and right.
        boxes: (N, K, 4), x1 y1 x2 y2 in cells.
        output: (N, C, K, 4), in place.
        argmax: of the same shape: which sample it is. Top and left are walked from x1 y1, bottom and right from x2 y2.
    """
    x1, y1, x2, y2 = boxes.unbind(2)
    steps = torch.linspace(0, 1, pool_size + 1, dtype=boxes.dtype, device=boxes.device)
    width, height = (x2 - x1)[..., None] * steps, (y2 - y1)[..., None] * steps
    still = torch.zeros_like(width)
    sides = ((x1[..., None] + width, y1[..., None] + still), (x1[..., None] + still, y1[..., None] + height),
             (x2[..., None] - width, y2[..., None] + still), (x2[..., None] + still, y2[..., None] - height))
    for side, (planes, (x, y)) in enumerate(zip(feature.chunk(4, 1), sides, strict=True)):
        largest, index = _bilinear(planes, y, x).max(3)
        output[..., side], argmax[..., side] = largest, index.to(argmax.dtype)


def _bilinear(planes: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Read planes (N, C, H, W) at y, x (N, K, S) -> (N, C, K, S). Up to one cell outside the border counts; beyond, zero."""
    height, width = planes.shape[2:]
    inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    y, x = y.clamp(0, height - 1), x.clamp(0, width - 1)
    image = torch.arange(len(planes), device=planes.device)[:, None, None]
    total = torch.zeros_like(planes[:, :1, :1, :1])
    for row in (y.floor(), y.floor() + 1):
        for column in (x.floor(), x.floor() + 1):
            near = (1 - (y - row).abs()) * (1 - (x - column).abs()) * inside
            cells = planes[image, :, row.clamp(max=height - 1).long(), column.clamp(max=width - 1).long()]
            total = total + cells.movedim(-1, 1) * near[:, None]
    return total


# Compiled mmcv has no such kernel for a CPU.
COMPARED = 'its definition, written as loops'
KERNELS = {'border_align_forward': border_align_forward}
