"""Compare deformable convolution with the definition, cell by cell, and with an ordinary convolution."""
from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from mmexport.ops.deformable_conv import SAMPLINGS, deform_conv2d
from mmexport.ops.op import with_forms

CASES = [dict(stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1, deform_groups=1),
         dict(stride=(2, 1), padding=(2, 1), dilation=(2, 1), groups=2, deform_groups=2),
         dict(stride=(1, 2), padding=(0, 3), dilation=(1, 2), groups=1, deform_groups=4)]


def _inputs(case: dict, size: tuple[int, int] = (9, 11)) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 8, *size, generator=generator, dtype=torch.float64)
    weight = torch.randn(6, 8 // case['groups'], 3, 2, generator=generator, dtype=torch.float64)
    bias = torch.randn(6, generator=generator, dtype=torch.float64)
    plain = F.conv2d(x, weight, bias, case['stride'], case['padding'], case['dilation'], case['groups'])
    taps = 6 * case['deform_groups']
    offset = 2 * torch.randn(2, 2 * taps, *plain.shape[2:], generator=generator, dtype=torch.float64).float().double()
    mask = torch.rand(2, taps, *plain.shape[2:], generator=generator, dtype=torch.float64)
    return x, offset, weight, bias, mask, plain


def _definition(x: Tensor, offset: Tensor, weight: Tensor, bias: Tensor, mask: Tensor, case: dict) -> Tensor:
    """Sum over taps of weight * mask * the bilinear value at the moved place, zero outside; loops and nothing else."""
    batch, channels, height, width = x.shape
    out, kernel_h, kernel_w = weight.shape[0], *weight.shape[2:]
    high, wide = offset.shape[2:]
    per_group, per_offset = channels // case['groups'], channels // case['deform_groups']
    answer = bias.view(1, -1, 1, 1).expand(batch, -1, high, wide).clone()

    def value(image: int, channel: int, y: float, x_: float) -> float:
        total = 0.0
        for row in (math.floor(y), math.floor(y) + 1):
            for column in (math.floor(x_), math.floor(x_) + 1):
                if 0 <= row < height and 0 <= column < width:
                    total += float(x[image, channel, row, column]) * (1 - abs(y - row)) * (1 - abs(x_ - column))
        return total

    for image in range(batch):
        for row in range(high):
            for column in range(wide):
                for channel in range(channels):
                    group = channel // per_offset
                    for tap in range(kernel_h * kernel_w):
                        index = group * kernel_h * kernel_w + tap
                        y = row * case['stride'][0] - case['padding'][0] + tap // kernel_w * case['dilation'][0]
                        x_ = column * case['stride'][1] - case['padding'][1] + tap % kernel_w * case['dilation'][1]
                        actual = value(image, channel, y + float(offset[image, 2 * index, row, column]),
                                      x_ + float(offset[image, 2 * index + 1, row, column]))
                        actual *= float(mask[image, index, row, column])
                        first = channel // per_group * (out // case['groups'])
                        part = slice(first, first + out // case['groups'])
                        answer[image, part, row, column] += actual * weight[part, channel % per_group, tap // kernel_w, tap % kernel_w]
    return answer


@pytest.mark.parametrize('form', SAMPLINGS)
@pytest.mark.parametrize('case', CASES)
def test_without_offsets_it_is_a_convolution(form: str, case: dict) -> None:
    x, offset, weight, bias, _, plain = _inputs(case)
    with with_forms(deformable_conv=form):
        actual = deform_conv2d(x, torch.zeros_like(offset), weight, bias, None, **case)
    assert torch.allclose(actual, plain, atol=1e-5)


@pytest.mark.parametrize('form', SAMPLINGS)
@pytest.mark.parametrize('case', CASES)
def test_it_is_the_definition(form: str, case: dict) -> None:
    x, offset, weight, bias, mask, _ = _inputs(case, (5, 6))
    with with_forms(deformable_conv=form):
        actual = deform_conv2d(x, offset, weight, bias, mask, **case)
    expected = _definition(x, offset, weight, bias, mask, case)
    assert float((actual - expected).abs().max()) < 1e-5 * float(expected.abs().max())
