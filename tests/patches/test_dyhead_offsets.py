"""Test DyHead's patch against upstream's block, on maps whose next level is half as large, or of one cell."""
from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mmexport.compat import provide_mmcv_ext
from tests.patches.comparing import ROUNDING, both, traced_once

provide_mmcv_ext()
PATCHES = ['DyHeadOffsets', 'DeformableConvolution']


class Block(nn.Module):
    """Call a block of DyHead with three levels as arguments of their own."""

    def __init__(self) -> None:
        super().__init__()
        from mmdet.models.necks.dyhead import DyHeadBlock
        torch.manual_seed(0)
        self.block = DyHeadBlock(16, 16, zero_init_offset=False).eval()
        for parameter in self.block.parameters():
            nn.init.normal_(parameter, std=0.2)

    def forward(self, first: Tensor, second: Tensor, third: Tensor) -> list[Tensor]:
        return self.block([first, second, third])


def _levels(batch: int, height: int, width: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    levels = []
    for _ in range(3):
        levels.append(torch.randn(batch, 16, height, width, generator=generator))
        height, width = (height + 1) // 2, (width + 1) // 2
    return tuple(levels)


@pytest.mark.parametrize('size', [(2, 12, 10), (1, 7, 9), (3, 2, 1)])
def test_it_equals_the_block_on_the_kernel(size: tuple[int, int, int]) -> None:
    block, levels = Block(), _levels(*size)
    before, after = both('DyHeadOffsets', lambda: torch.cat([level.flatten() for level in block(*levels)]))
    assert float((before - after).abs().max()) <= 10 * ROUNDING * float(before.abs().max())


def test_a_trace_takes_other_sizes() -> None:
    block = Block()
    traced = traced_once(PATCHES, block, _levels(1, 12, 10))
    for size in ((2, 7, 13), (1, 5, 3)):
        levels = _levels(*size)
        with torch.no_grad():
            for expected, actual in zip(block(*levels), traced(*levels), strict=True):
                assert float((expected - actual).abs().max()) <= 10 * ROUNDING * float(expected.abs().max())
