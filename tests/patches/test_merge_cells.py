"""Test the resize of NAS-FPN's cells against mmcv's."""
from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmexport.backends.exported.program import part_program, unavailable
from mmexport.compat import provide_mmcv_ext
from mmexport.patching import patched
from tests.patches.comparing import both, traced_once

provide_mmcv_ext()


class Joining(nn.Module):
    """Resize a map to the size of another."""

    def __init__(self) -> None:
        super().__init__()
        from mmcv.ops.merge_cells import SumCell
        self.cell = SumCell(2, 2, with_out_conv=False)

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        return self.cell._resize(x, other.shape[-2:])


@pytest.mark.parametrize(('size', 'other'), [((16, 24), (16, 24)), ((8, 12), (16, 24)), ((16, 24), (8, 12)), ((16, 24), (4, 6)),
                                             ((13, 21), (7, 11)), ((13, 21), (4, 6)), ((8, 12), (15, 23))])
def test_it_equals_upstream(size: tuple[int, int], other: tuple[int, int]) -> None:
    joining, x, like = Joining(), torch.randn(2, 2, *size), torch.zeros(2, 2, *other)
    expected, actual = both('MergeCells', lambda: joining(x, like))
    assert torch.equal(expected, actual) and actual.shape[2:] == other


@pytest.mark.parametrize(('example', 'other'), [((16, 16, 8, 8), (48, 32, 24, 16)), ((16, 16, 4, 4), (13, 21, 4, 6)),
                                                ((4, 4, 16, 16), (6, 10, 24, 40))])
def test_a_trace_follows_the_size(example: tuple[int, ...], other: tuple[int, ...]) -> None:
    joining = Joining()
    traced = traced_once('MergeCells', joining, (torch.randn(1, 2, *example[:2]), torch.zeros(1, 2, *example[2:])))
    x, like = torch.randn(2, 2, *other[:2]), torch.zeros(2, 2, *other[2:])
    assert torch.equal(traced(x, like), joining(x, like))


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
def test_a_program_follows_the_size() -> None:
    class Pyramid(nn.Module):
        """Bring a map to the size of one that is eight times smaller or nearly so, and that one to its size."""

        def __init__(self) -> None:
            super().__init__()
            self.joining = Joining()

        def forward(self, *images: Tensor) -> tuple[Tensor, Tensor]:
            image, = images
            deep = F.max_pool2d(image[..., ::4, ::4], 2)
            return self.joining(image, deep), self.joining(deep, image)

    pyramid = Pyramid()
    with patched(['MergeCells']):
        program = part_program(pyramid, (torch.randn(1, 2, 64, 96),), [(2, 3)])
    for size in ((64, 64), (50, 31), (128, 37), (72, 28)):
        image = torch.randn(1, 2, *size)
        for one, other in zip(program.module()(image), pyramid(image), strict=True):
            assert torch.equal(one, other)
