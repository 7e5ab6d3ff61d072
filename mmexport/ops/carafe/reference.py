"""Compute mmcv's kernels of CARAFE, from their definition.

mmcv has them on CUDA only. Paper: CARAFE, arXiv:1905.02188. Signatures as in mmcv/ops/csrc/pytorch/pybind.cpp.
"""
from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def carafe_naive_forward(features: Tensor, masks: Tensor, output: Tensor, kernel_size: int, group_size: int, scale_factor: int) -> None:
    """Write the weighted sums of neighbours into `output`.

    Args:
        features: (N, C, H, W); outside is zero.
        masks: (N, groups * kernel_size ** 2, H * scale_factor, W * scale_factor), the weights of the neighbours for each result.
        output: (N, C, H * scale_factor, W * scale_factor), in place.
    """
    reach = kernel_size // 2
    height, width = features.shape[2:]
    framed = F.pad(features, (reach, reach, reach, reach))
    total = output.new_zeros(output.shape)
    share = features.shape[1] // group_size
    for row in range(kernel_size):
        for column in range(kernel_size):
            near = framed[:, :, row:row + height, column:column + width]
            near = near.repeat_interleave(scale_factor, 2).repeat_interleave(scale_factor, 3)
            tap = row * kernel_size + column
            weights = masks[:, tap::kernel_size ** 2].repeat_interleave(share, 1)
            total += near * weights
    output.copy_(total)


def carafe_forward(features: Tensor, masks: Tensor, rfeatures: Tensor, routput: Tensor, rmasks: Tensor, output: Tensor, kernel_size: int,
                   group_size: int, scale_factor: int) -> None:
    """Compute what `carafe_naive_forward` computes. `rfeatures`, `routput` and `rmasks` are working memory of the CUDA kernel."""
    carafe_naive_forward(features, masks, output, kernel_size, group_size, scale_factor)


# Compiled mmcv has no such kernel for a CPU.
COMPARED = 'its definition, written as loops'
KERNELS = {'carafe_naive_forward': carafe_naive_forward, 'carafe_forward': carafe_forward}
