"""Rewrite operators so that Inductor generates fast CPU code for them.

It writes each of these as a gather and computes, for every element that it reads, where that lies. Sizes are open, so that is a division
of integers for each, and none of it vectorizes; and what comes before the operator (a norm, a ReLU) is computed again at every read. Here
a resize is two products with matrices of weights, and the others are slices put together.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...ops.bilinear import bilinear_weights
from ...utils.skipped import skip
from ..exported.internals.decomposing import decomposed_by_node
from ..exported.internals.layout_guards import drop_layout_guards, guards_of_the_model

if TYPE_CHECKING:
    from torch.export import ExportedProgram

aten = torch.ops.aten


def in_fast_forms(program: ExportedProgram) -> ExportedProgram:
    """Return the program with `FORMS` instead of their operators; unchanged if it has none of them."""
    if not any(node.target in FORMS for node in program.graph.nodes):
        return program
    try:
        with guards_of_the_model() as recorded_guards:
            rewritten = decomposed_by_node(program).run_decompositions(FORMS)
        drop_layout_guards(rewritten, recorded_guards)
    except Exception as exc:  # Code that depends on torch's internals failed: the unchanged program compiles to slower code.
        skip('the fast forms of operators for Inductor', f'{type(exc).__name__}: {exc}')
        return program
    return rewritten


def rolled(x: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Tensor:
    """Compute ``torch.roll``; without `dims`, of the flattened tensor."""
    if not dims:
        return rolled(x.flatten(), shifts, (0,)).view(x.shape)
    for shift, axis in zip(shifts, dims, strict=True):
        x = torch.cat((aten.slice.Tensor(x, axis, -shift), aten.slice.Tensor(x, axis, 0, -shift)), axis) if shift else x
    return x


def unfolded(x: Tensor, kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]) -> Tensor:
    """Compute ``F.unfold``: (N, C, H, W) -> (N, C * kernel height * kernel width, positions)."""
    if any(padding):
        x = F.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    counts = [(x.shape[2 + axis] - dilation[axis] * (kernel_size[axis] - 1) - 1) // stride[axis] + 1 for axis in (0, 1)]
    ends = [(count - 1) * step + 1 for count, step in zip(counts, stride, strict=True)]
    parts = [x[:, :, top:top + ends[0]:stride[0], left:left + ends[1]:stride[1]]
             for top in range(0, kernel_size[0] * dilation[0], dilation[0]) for left in range(0, kernel_size[1] * dilation[1], dilation[1])]
    return torch.stack(parts, 2).reshape(x.shape[0], x.shape[1] * len(parts), counts[0] * counts[1])


def resized(x: Tensor, output_size: Sequence[Any] | None, align_corners: bool, scale_factors: Sequence[float] | None) -> Tensor:
    """Compute ``F.interpolate(..., mode='bilinear')``: (N, C, H, W) -> (N, C, h, w)."""
    factors: Sequence[float | None] = scale_factors or (None, None)
    sizes = output_size or [torch.sym_int(side * factor) for side, factor in zip(x.shape[2:], scale_factors or (), strict=True)]
    down, across = (bilinear_weights(side, size, align_corners, factor, x)
                    for side, size, factor in zip(x.shape[2:], sizes, factors, strict=True))
    return torch.matmul(down, torch.matmul(x, across.transpose(0, 1)))


FORMS = {aten.roll.default: rolled, aten.im2col.default: unfolded, aten.upsample_bilinear2d.vec: resized}
