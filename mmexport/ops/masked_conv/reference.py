"""Compute mmcv's kernels of masked convolution, from their definition.

mmcv has them on CUDA only. Signatures as in mmcv/ops/csrc/pytorch/pybind.cpp; used by Guided Anchoring, arXiv:1901.03278.
"""
from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def masked_im2col_forward(feature: Tensor, mask_h_idx: Tensor, mask_w_idx: Tensor, columns: Tensor, kernel_h: int, kernel_w: int,
                          pad_h: int, pad_w: int) -> None:
    """Write the windows of `feature` (1, C, H, W) around each place into `columns` (C * kernel_h * kernel_w, places)."""
    # One window more at the far ends, for places whose window reaches over the padding.
    framed = F.pad(feature[0], (pad_w, kernel_w, pad_h, kernel_h))
    for row in range(kernel_h):
        for column in range(kernel_w):
            columns[row * kernel_w + column::kernel_h * kernel_w] = framed[:, mask_h_idx + row, mask_w_idx + column]


def masked_col2im_forward(columns: Tensor, mask_h_idx: Tensor, mask_w_idx: Tensor, image: Tensor, height: int, width: int,
                          channels: int) -> None:
    """Write `columns` (channels, places) into `image` (1, channels, height, width) at their places."""
    image[0, :, mask_h_idx, mask_w_idx] = columns


# Compiled mmcv has no such kernel for a CPU.
COMPARED = 'an ordinary convolution'
KERNELS = {'masked_im2col_forward': masked_im2col_forward, 'masked_col2im_forward': masked_col2im_forward}
