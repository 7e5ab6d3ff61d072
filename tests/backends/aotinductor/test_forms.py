"""Test forms of operators for Inductor: what they compute, at every size, and that the program they are put into stays open."""
from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmexport.backends.aotinductor.forms import FORMS, in_fast_forms, resized, rolled, unfolded
from mmexport.backends.exported.internals.layout_guards import drop_layout_guards, guards_of_the_model


@pytest.mark.parametrize('align_corners', [False, True])
@pytest.mark.parametrize(('size', 'wanted'), [((5, 7), (13, 16)), ((16, 9), (5, 4)), ((1, 1), (3, 4)), ((8, 8), (1, 1)), ((7, 9), (7, 9))])
def test_resized_is_interpolate(size: tuple[int, int], wanted: tuple[int, int], align_corners: bool) -> None:
    x = torch.randn(2, 3, *size)
    right = F.interpolate(x, wanted, mode='bilinear', align_corners=align_corners)
    torch.testing.assert_close(resized(x, wanted, align_corners, None), right)


@pytest.mark.parametrize('factors', [(2.0, 2.0), (1.7, 0.5)])
def test_resized_takes_factors(factors: tuple[float, float]) -> None:
    x = torch.randn(2, 3, 9, 11)
    right = F.interpolate(x, scale_factor=factors, mode='bilinear', align_corners=False)
    torch.testing.assert_close(resized(x, None, False, factors), right)


def test_places_are_not_counted_in_float16() -> None:
    x = torch.randn(1, 1, 1, 900)
    right = F.interpolate(x, (1, 3001), mode='bilinear', align_corners=False)
    torch.testing.assert_close(resized(x.half(), (1, 3001), False, None).float(), right, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(('shifts', 'dims'), [((3, -2), (1, 2)), ((-3,), (3,)), ((0,), (1,)), ((4,), ())])
def test_rolled_is_roll(shifts: tuple[int, ...], dims: tuple[int, ...]) -> None:
    x = torch.randn(2, 6, 7, 8)
    assert torch.equal(rolled(x, shifts, dims), torch.roll(x, shifts, dims))


@pytest.mark.parametrize(('kernel', 'dilation', 'padding', 'stride'), [
    ((2, 2), (1, 1), (0, 0), (2, 2)), ((3, 3), (1, 1), (1, 1), (1, 1)), ((3, 2), (2, 1), (2, 0), (2, 3)), ((2, 2), (1, 2), (0, 1), (2, 1))])
def test_unfolded_is_unfold(kernel: Any, dilation: Any, padding: Any, stride: Any) -> None:
    x = torch.randn(2, 3, 9, 11)
    assert torch.equal(unfolded(x, kernel, dilation, padding, stride), F.unfold(x, kernel, dilation, padding, stride))


class Windows(nn.Module):
    """Pad to whole windows, roll, merge, and bring back to its size, as Swin and UPerNet do."""

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        whole = F.pad(x, (0, -width % 7, 0, -height % 7))
        shifted = torch.roll(whole, (-3, -3), (2, 3))[:, :, :height, :width]
        merged = F.unfold(shifted, 2, stride=2).view(x.shape[0], -1, height // 2, width // 2)
        return F.interpolate(merged, (height, width), mode='bilinear', align_corners=False)


def test_a_program_keeps_its_open_sizes() -> None:
    open_ = {axis: torch.export.Dim.AUTO(min=1, max=4096) for axis in (0, 2, 3)}
    with guards_of_the_model() as requested:
        program = torch.export.export(Windows(), (torch.randn(2, 3, 60, 90),), dynamic_shapes=(open_,),
                                      prefer_deferred_runtime_asserts_over_guards=True)
    drop_layout_guards(program, requested)
    before = str(program.graph)
    fast = in_fast_forms(program)
    assert not any(node.target in FORMS for node in fast.graph.nodes)
    assert str(program.graph) == before
    # 70 and 98 are whole windows, where no padding is.
    for shape in ((2, 3, 60, 90), (1, 3, 70, 98), (3, 3, 33, 41)):
        x = torch.randn(shape)
        torch.testing.assert_close(fast.module()(x), Windows()(x))


def test_a_program_without_them_is_left_as_it_is() -> None:
    program = torch.export.export(nn.ReLU(), (torch.randn(2, 3),))
    assert in_fast_forms(program) is program
