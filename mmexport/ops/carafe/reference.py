"""Compute mmcv's kernels of CARAFE, from their definition.

mmcv has them on CUDA only. Paper: CARAFE, arXiv:1905.02188. Signatures as in mmcv/ops/csrc/pytorch/pybind.cpp.
"""
from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

# Numbers of the output that are computed at once.
TOGETHER = 1 << 24


def carafe_naive_forward(features: Tensor, masks: Tensor, output: Tensor, kernel_size: int, group_size: int, scale_factor: int) -> None:
    """Write the weighted sums of neighbours into `output`.

    Args:
        features: (N, C, H, W); outside is zero.
        masks: (N, groups * kernel_size ** 2, H * scale_factor, W * scale_factor), the weights of the neighbours for each result.
        output: (N, C, H * scale_factor, W * scale_factor), in place.
    """
    # A head of masks has 100 pictures for each real one, and four tensors of the size of the output are needed.
    step = max(1, TOGETHER // max(1, output[:1].numel()))
    for first in range(0, len(features), step):
        some = slice(first, first + step)
        output[some] = _summed(features[some], masks[some], kernel_size, group_size, scale_factor)


def _summed(features: Tensor, masks: Tensor, kernel_size: int, group_size: int, scale_factor: int) -> Tensor:
    reach = kernel_size // 2
    height, width = features.shape[2:]
    framed = F.pad(features, (reach, reach, reach, reach))
    total = features.new_zeros(*features.shape[:2], scale_factor * height, scale_factor * width)
    share = features.shape[1] // group_size
    for row in range(kernel_size):
        for column in range(kernel_size):
            near = framed[:, :, row:row + height, column:column + width]
            near = near.repeat_interleave(scale_factor, 2).repeat_interleave(scale_factor, 3)
            tap = row * kernel_size + column
            weights = masks[:, tap::kernel_size ** 2].repeat_interleave(share, 1)
            total += near * weights
    return total


def carafe_forward(features: Tensor, masks: Tensor, rfeatures: Tensor, routput: Tensor, rmasks: Tensor, output: Tensor, kernel_size: int,
                   group_size: int, scale_factor: int) -> None:
    """Compute what `carafe_naive_forward` computes. `rfeatures`, `routput` and `rmasks` are working memory of the CUDA kernel."""
    carafe_naive_forward(features, masks, output, kernel_size, group_size, scale_factor)


# Compiled mmcv has no such kernel for a CPU.
COMPARED = 'its definition, written as loops'
KERNELS = {'carafe_naive_forward': carafe_naive_forward, 'carafe_forward': carafe_forward}
