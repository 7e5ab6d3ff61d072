"""Test CARAFE against the reference kernel, and in mmdet's neck at sizes that were not traced."""
from __future__ import annotations

import pytest
import torch
from mmexport.patches.carafe import reassembled

from mmexport.compat import provide_mmcv_ext
from mmexport.ops.carafe.reference import carafe_naive_forward
from tests.patches.comparing import ROUNDING, both, traced_once

provide_mmcv_ext()


@pytest.mark.parametrize(('kernel', 'groups', 'scale'), [(5, 1, 2), (3, 2, 2), (1, 1, 3), (5, 4, 1)])
def test_sums_are_those_of_the_reference_kernel(kernel: int, groups: int, scale: int) -> None:
    generator = torch.Generator().manual_seed(kernel)
    features = torch.randn(2, 8, 5, 7, generator=generator)
    masks = torch.randn(2, groups * kernel ** 2, 5 * scale, 7 * scale, generator=generator)
    expected = torch.zeros(2, 8, 5 * scale, 7 * scale)
    carafe_naive_forward(features, masks, expected, kernel, groups, scale)
    torch.testing.assert_close(reassembled(features, masks, kernel, groups, scale), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize('name', ['CARAFE', 'CARAFENaive'])
def test_modules_equal_upstream(name: str) -> None:
    from mmcv import ops
    module = getattr(ops, name)(5, 2, 2)
    features, masks = torch.randn(2, 8, 4, 6), torch.randn(2, 50, 8, 12)
    one, other = both('Carafe', lambda: module(features, masks))
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_the_upsampler_takes_other_sizes() -> None:
    from mmcv.ops.carafe import CARAFEPack
    torch.manual_seed(0)
    module = CARAFEPack(8, 2, up_kernel=5, up_group=1, compressed_channels=4).eval()
    torch.nn.init.normal_(module.content_encoder.weight)
    traced, x = traced_once('Carafe', module, (torch.randn(1, 8, 4, 6),)), torch.randn(2, 8, 7, 5)
    torch.testing.assert_close(traced(x), module(x), atol=1e-5, rtol=1e-5)


def test_the_neck_adds_maps_of_other_sizes() -> None:
    from mmdet.models.necks import FPN_CARAFE
    torch.manual_seed(0)
    neck = FPN_CARAFE([8, 8, 8], 8, 3, norm_cfg=dict(type='BN'), act_cfg=None).eval()
    maps = [torch.randn(1, 8, side, side + 1) for side in (15, 8, 4)]
    even = tuple(torch.randn(1, 8, side, side) for side in (16, 8, 4))
    with torch.no_grad():
        traced = traced_once(['Carafe', 'FpnCarafeSizes'], _Neck(neck), even)
        for actual, expected in zip(traced(*maps), neck(maps), strict=True):
            assert float((actual - expected).abs().max()) < 5 * ROUNDING * float(expected.abs().max())


class _Neck(torch.nn.Module):
    def __init__(self, neck: torch.nn.Module) -> None:
        super().__init__()
        self.neck = neck

    def forward(self, *maps: torch.Tensor) -> tuple[torch.Tensor, ...]:
        answers: tuple[torch.Tensor, ...] = self.neck(maps)
        return answers
