"""Replace mmcv's PSAMask by pure PyTorch."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class PointwiseSpatialAttention(Patch):
    """Compute the masks of PSANet in pure PyTorch: mmcv's kernel fills an output where no tracer sees it.

    Compared with compiled mmcv 2.1.0 by its recorded results (tests/data/kernels.npz).

    Source: mmcv/ops/psa_mask.py, ``PSAMask.forward``.
    """

    targets = ('mmcv.ops.psa_mask.PSAMask.forward',)
    upstream = 'mmcv 2.0.1 2.1.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda module, x: spread(x, tuple(module.mask_size), collect=module.psa_type == 'collect')


def spread(x: Tensor, mask_size: tuple[int, int], collect: bool) -> Tensor:
    """Return the weight that each cell has for each other -> (N, H * W, H, W); the other cell is in the channel, or else the cell itself.

    Args:
        x: (N, mask height * mask width, H, W), the weights of the cells around each.
    """
    height, width = x.shape[2:]
    rows, inside_rows = _places(height, mask_size[0], x.device)
    columns, inside_columns = _places(width, mask_size[1], x.device)
    # (other row, other column, row, column)
    index = rows[:, None, :, None] * mask_size[1] + columns[None, :, None, :]
    inside = inside_rows[:, None, :, None] & inside_columns[None, :, None, :]
    shape = (1, height * width, height, width)
    weights = x.gather(1, index.reshape(shape).expand(x.shape[0], -1, -1, -1)) * inside.reshape(shape).to(x.dtype)
    if collect:
        return weights
    return weights.flatten(2).transpose(1, 2).reshape(x.shape[0], height * width, height, width)


def _places(size: Any, mask: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return along one axis, by other cell and cell, which place of the mask the other one has, and whether it has one."""
    cells = torch.arange(size, device=device)
    places = cells[:, None] - cells + (mask - 1) // 2
    return places.clamp(0, mask - 1), (places >= 0) & (places < mask)
