"""Compute mmcv's kernel of multi-scale deformable attention, from its definition.

mmcv has it on CUDA only, and calls it there only. Paper: Deformable DETR, arXiv:2010.04159. Signature as in
mmcv/ops/csrc/pytorch/pybind.cpp.
"""
from __future__ import annotations

import torch
from torch import Tensor


def ms_deform_attn_forward(value: Tensor, value_spatial_shapes: Tensor, value_level_start_index: Tensor, sampling_locations: Tensor,
                           attention_weights: Tensor, im2col_step: int) -> Tensor:
    """Return the weighted sums of the sampled values (N, queries, heads * channels).

    Args:
        value: (N, cells of all levels, heads, channels).
        value_spatial_shapes: (levels, 2), height and width of each level.
        sampling_locations: (N, queries, heads, levels, points, 2), x and y as a share of the level's width and height.
        attention_weights: (N, queries, heads, levels, points).
    """
    count, _, heads, channels = value.shape
    queries = sampling_locations.shape[1]
    total = value.new_zeros(count, queries, heads, channels)
    image = torch.arange(count, device=value.device)[:, None, None, None]
    head = torch.arange(heads, device=value.device)[None, None, :, None]
    for level, (height, width) in enumerate(value_spatial_shapes.tolist()):
        start = int(value_level_start_index[level])
        # The centre of a cell is at half of it.
        x = sampling_locations[:, :, :, level, :, 0] * width - 0.5
        y = sampling_locations[:, :, :, level, :, 1] * height - 0.5
        weights = attention_weights[:, :, :, level]
        for row, column in ((y.floor(), x.floor()), (y.floor(), x.floor() + 1), (y.floor() + 1, x.floor()), (y.floor() + 1, x.floor() + 1)):
            near = (1 - (y - row).abs()) * (1 - (x - column).abs())
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            cell = start + row.clamp(0, height - 1).long() * width + column.clamp(0, width - 1).long()
            total += (value[image, cell, head] * (weights * near * inside)[..., None]).sum(3)
    return total.flatten(2)


# Compiled mmcv has no such kernel for a CPU.
COMPARED = 'the PyTorch code that mmcv has for a CPU'
KERNELS = {'ms_deform_attn_forward': ms_deform_attn_forward}
