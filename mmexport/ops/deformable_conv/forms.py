"""Compute deformable convolution, with and without modulation, in plain PyTorch. Its two forms are equal up to rounding.

``grid`` samples with ``grid_sample``; ``gather`` adds up the four cells around each place, for runtimes that get GridSample wrong. The rest
is a matrix product, as in an ordinary convolution that is written out.

Papers: Deformable ConvNets, arXiv:1703.06211, and v2, arXiv:1811.11168. Layouts as in mmcv/ops/deform_conv.py and
mmcv/ops/modulated_deform_conv.py.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..deformable_attention.forms import corners
from ..op import form_of


def deform_conv2d(x: Tensor, offset: Tensor, weight: Tensor, bias: Tensor | None, mask: Tensor | None, stride: Sequence[int],
                  padding: Sequence[int], dilation: Sequence[int], groups: int, deform_groups: int) -> Tensor:
    """Convolve `x` at positions moved by `offset`.

    Args:
        x: (N, C, H, W).
        offset: (N, G * K * 2, h, w), G groups of offsets, K taps of the kernel, y before x, in cells.
        weight: (O, C / groups, kernel height, kernel width).
        mask: (N, G * K, h, w), what each tap counts for; None counts it once.

    Returns:
        (N, O, h, w).
    """
    kernel = weight.shape[2:]
    taps = kernel[0] * kernel[1]
    # Places in float32 under autocast too, see MultiScaleDeformableAttention.
    moved = offset.float().unflatten(1, (deform_groups, taps, 2))
    rows, columns = _grid(offset.shape[2:], kernel, stride, padding, dilation, offset.device)
    sample = SAMPLINGS[form_of('deformable_conv')]
    cells = sample(x.unflatten(1, (deform_groups, -1)).flatten(0, 1), (moved[:, :, :, 1] + columns).flatten(0, 1),
                   (moved[:, :, :, 0] + rows).flatten(0, 1))
    if mask is not None:
        cells = cells * mask.unflatten(1, (deform_groups, taps)).flatten(0, 1)[:, None]
    # (N * G, C / G, K, h, w) -> (N, groups, C / groups * K, h * w)
    cells = cells.unflatten(0, (-1, deform_groups)).flatten(1, 2).unflatten(1, (groups, -1)).flatten(2, 3).flatten(3)
    product = (weight.flatten(1).unflatten(0, (groups, -1)) @ cells.to(weight.dtype)).flatten(1, 2)
    answer = product.unflatten(2, (offset.shape[2], offset.shape[3]))
    return answer if bias is None else answer + bias.view(1, -1, 1, 1)


def pair(value: Any) -> tuple[int, int]:
    """Return an option of a convolution for both axes; a single number counts for both."""
    return (int(value[0]), int(value[1])) if isinstance(value, (tuple, list)) else (int(value), int(value))


def grid(planes: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Sample planes (B, c, H, W) at x and y (B, K, h, w) in cells -> (B, c, K, h, w)."""
    height, width = planes.shape[2:]
    at = torch.stack([(2 * x + 1) / width - 1, (2 * y + 1) / height - 1], dim=-1).flatten(1, 2)
    cells = F.grid_sample(planes, at.to(planes.dtype), mode='bilinear', padding_mode='zeros', align_corners=False)
    return cells.unflatten(2, (x.shape[1], x.shape[2]))


def gather(planes: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Sample by index, with the arguments of `grid`."""
    height, width = planes.shape[2:]
    table, total = planes.flatten(2), None
    for column, row, share in corners(x, y, height, width):
        index = (row * width + column).flatten(1)[:, None].expand(-1, planes.shape[1], -1)
        part = table.gather(2, index) * share.flatten(1)[:, None].to(table.dtype)
        total = part if total is None else total + part
    assert total is not None
    return total.unflatten(2, (x.shape[1], x.shape[2], x.shape[3]))


SAMPLINGS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {'grid': grid, 'gather': gather}


def _grid(size: Any, kernel: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
          device: torch.device) -> tuple[Tensor, Tensor]:
    """Return where an ordinary convolution reads: rows (K, h, 1) and columns (K, 1, w), in cells."""
    first = [torch.arange(size[axis], device=device) * stride[axis] - padding[axis] for axis in (0, 1)]
    steps = [torch.arange(kernel[axis], device=device) * dilation[axis] for axis in (0, 1)]
    rows = steps[0].repeat_interleave(kernel[1])[:, None] + first[0]
    columns = steps[1].repeat(kernel[0])[:, None] + first[1]
    return rows[:, :, None], columns[:, None, :]
