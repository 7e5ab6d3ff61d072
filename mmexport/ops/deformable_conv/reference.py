"""Compute mmcv's kernels of deformable convolution, from their definition.

One tap of the kernel after the other reads its cell at the moved place and adds its share. Nothing here is shared with a patch or a form:
those are tested against these kernels.

Papers: Deformable ConvNets, arXiv:1703.06211, and v2, arXiv:1811.11168. Signatures as in mmcv/ops/csrc/pytorch/pybind.cpp.
"""
from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def deform_conv_forward(feature: Tensor, weight: Tensor, offset: Tensor, output: Tensor, columns: Tensor, ones: Tensor, kW: int, kH: int,
                        dW: int, dH: int, padW: int, padH: int, dilationW: int, dilationH: int, group: int, deformable_group: int,
                        im2col_step: int) -> None:
    """Write the convolution of `feature` (N, C, H, W) into `output` (N, O, h, w); for `offset` see `_convolve`."""
    _convolve(feature, weight, offset, None, output, (dH, dW), (padH, padW), (dilationH, dilationW), group, deformable_group)


def modulated_deform_conv_forward(feature: Tensor, weight: Tensor, bias: Tensor, ones: Tensor, offset: Tensor, mask: Tensor,
                                  output: Tensor, columns: Tensor, kernel_h: int, kernel_w: int, stride_h: int, stride_w: int,
                                  pad_h: int, pad_w: int, dilation_h: int, dilation_w: int, group: int, deformable_group: int,
                                  with_bias: bool) -> None:
    """Write the convolution with a factor for each tap into `output` (N, O, h, w); for `offset` and `mask` see `_convolve`.

    mmcv does not compare their size with that of `output`. It takes the memory of each sample, from its start, for rows of h times w cells:
    DyHead convolves a map with the offsets of a larger one.
    """
    cells = output.shape[2] * output.shape[3]
    offset, mask = (values.flatten(1)[:, :cells * deformable_group * kernel_h * kernel_w * each].unflatten(1, (-1, *output.shape[2:]))
                    for values, each in ((offset, 2), (mask, 1)))
    _convolve(feature, weight, offset, mask, output, (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w), group,
              deformable_group)
    if with_bias:
        output += bias[:, None, None]


def _convolve(feature: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None, output: Tensor, stride: tuple[int, int],
              padding: tuple[int, int], dilation: tuple[int, int], groups: int, deform_groups: int) -> None:
    """Convolve.

    Args:
        offset: (N, G * K * 2, h, w), what each of K taps is moved by in each of G groups of channels; y, x.
        mask: (N, G * K, h, w), what each tap counts for.
    """
    count, channels = feature.shape[:2]
    height, width = output.shape[2:]
    taps = [(row, column) for row in range(weight.shape[2]) for column in range(weight.shape[3])]
    moves = offset.view(count, deform_groups, len(taps), 2, height, width)
    total = torch.zeros(output.shape, dtype=output.dtype, device=output.device)
    share = channels // deform_groups
    for number, (row, column) in enumerate(taps):
        down = torch.arange(height, device=feature.device) * stride[0] - padding[0] + row * dilation[0]
        across = torch.arange(width, device=feature.device) * stride[1] - padding[1] + column * dilation[1]
        parts = []
        for group in range(deform_groups):
            y, x = moves[:, group, number, 0] + down[:, None], moves[:, group, number, 1] + across
            cells = _bilinear(feature[:, group * share:(group + 1) * share], y, x)
            parts.append(cells if mask is None else cells * mask[:, group * len(taps) + number, None])
        total += F.conv2d(torch.cat(parts, 1), weight[:, :, row, column, None, None], groups=groups)
    output.copy_(total)


def _bilinear(planes: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Read planes (N, c, H, W) at y, x (N, h, w) -> (N, c, h, w); outside is zero."""
    height, width = planes.shape[2:]
    # One cell of zeros around the map, and places outside of it brought there.
    framed = F.pad(planes, (1, 1, 1, 1))
    y, x = (y + 1).clamp(0, height + 1), (x + 1).clamp(0, width + 1)
    top, left = y.floor().clamp(max=height), x.floor().clamp(max=width)
    down, across = (y - top)[:, None], (x - left)[:, None]
    image = torch.arange(len(planes), device=planes.device)[:, None, None]
    rows, columns = top.long(), left.long()

    def cell(below: int, beside: int) -> Tensor:
        return framed[image, :, rows + below, columns + beside].movedim(-1, 1)

    upper = cell(0, 0) * (1 - across) + cell(0, 1) * across
    lower = cell(1, 0) * (1 - across) + cell(1, 1) * across
    return upper * (1 - down) + lower * down


COMPARED = 'compiled mmcv 2.1.0'
KERNELS = {'deform_conv_forward': deform_conv_forward, 'modulated_deform_conv_forward': modulated_deform_conv_forward}
