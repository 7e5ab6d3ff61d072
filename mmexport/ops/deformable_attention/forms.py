"""Compute multi-scale deformable attention in plain PyTorch, in three forms equal up to rounding.

``bag`` gathers the four corners of every sample as rows of the value table and adds them up with ``embedding_bag``: one pass, no
intermediate of the size of the samples. ``grid`` samples each level with ``grid_sample`` and adds the levels up one by one, for
runtimes without ``embedding_bag``. ``gather`` adds up the corners one by one, for runtimes that get GridSample wrong. None stacks the
samples of all levels, as upstream does.

Shapes: value (N, S, heads, d), S the sum of the levels' h * w; shapes, a list of L (h, w); offsets (N, Q, heads, L, P, 2), in cells,
x first; weights (N, Q, heads, L, P); reference (N, Q, L, 2) in 0..1, or (N, Q, L, 4) with box sizes. Result (N, Q, heads * d).

Paper: Deformable DETR, arXiv:2010.04159, equation 3. Reference form: mmcv/ops/multi_scale_deform_attn.py,
``multi_scale_deformable_attn_pytorch``.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..op import form_of

Shapes = Sequence[tuple[Any, Any]]


def bag(value: Tensor, shapes: Shapes, offsets: Tensor, weights: Tensor, reference: Tensor) -> Tensor:
    batch, keys, heads, channels = value.shape
    queries = offsets.shape[1]
    table = value.flatten(0, 2)
    image = torch.arange(batch, device=value.device)[:, None] * keys
    first = (image * heads + torch.arange(heads, device=value.device)).view(batch, 1, heads, 1)
    rows, shares = [], []
    start: Any = 0
    for level, (height, width) in enumerate(shapes):
        x, y = _cells(reference[:, :, level], offsets[:, :, :, level], height, width)
        for column, row, share in corners(x, y, height, width):
            rows.append((row * width + column + start) * heads + first)
            shares.append(share * weights[:, :, :, level])
        start = start + height * width
    index, share = torch.cat(rows, dim=-1).flatten(0, 2), torch.cat(shares, dim=-1).flatten(0, 2)
    summed = F.embedding_bag(index, table, per_sample_weights=share.to(table.dtype), mode='sum')
    return summed.view(batch, queries, heads * channels)


def grid(value: Tensor, shapes: Shapes, offsets: Tensor, weights: Tensor, reference: Tensor) -> Tensor:
    batch, _, heads, _ = value.shape
    planes = value.permute(0, 2, 3, 1).flatten(0, 1).split([height * width for height, width in shapes], dim=-1)
    total: Tensor | None = None
    for level, (height, width) in enumerate(shapes):
        # Points before queries: a runtime then weighs and adds up along long rows, and not four numbers at a time.
        places = _places(reference[:, :, level], offsets[:, :, :, level].permute(0, 2, 3, 1, 4), height, width)
        at = (2 * places - 1).flatten(0, 1)
        sampled = F.grid_sample(planes[level].unflatten(-1, (height, width)), at.to(value.dtype), mode='bilinear',
                                padding_mode='zeros', align_corners=False)
        part = (sampled * weights[:, :, :, level].permute(0, 2, 3, 1).flatten(0, 1)[:, None]).sum(2)
        total = part if total is None else total + part
    assert total is not None
    return total.unflatten(0, (batch, heads)).flatten(1, 2).transpose(1, 2).contiguous()


def gather(value: Tensor, shapes: Shapes, offsets: Tensor, weights: Tensor, reference: Tensor) -> Tensor:
    batch, keys, heads, channels = value.shape
    table = value.flatten(0, 2)
    image = torch.arange(batch, device=value.device)[:, None] * keys
    first = (image * heads + torch.arange(heads, device=value.device)).view(batch, 1, heads, 1)
    total: Tensor | None = None
    start: Any = 0
    for level, (height, width) in enumerate(shapes):
        x, y = _cells(reference[:, :, level], offsets[:, :, :, level], height, width)
        for column, row, share in corners(x, y, height, width):
            corner = F.embedding((row * width + column + start) * heads + first, table)
            part = (corner * (share * weights[:, :, :, level]).to(table.dtype)[..., None]).sum(-2)
            total = part if total is None else total + part
        start = start + height * width
    assert total is not None
    return total.flatten(2)


SAMPLINGS: dict[str, Callable[[Tensor, Shapes, Tensor, Tensor, Tensor], Tensor]] = {'bag': bag, 'grid': grid, 'gather': gather}


def sampled(value: Tensor, shapes: Shapes, offsets: Tensor, weights: Tensor, reference: Tensor) -> Tensor:
    """Apply attention in the form that the backend prefers, ``bag`` by default."""
    return SAMPLINGS[form_of('deformable_attention')](value, shapes, offsets, weights, reference)


def _cells(reference: Tensor, offsets: Tensor, height: Any, width: Any) -> tuple[Tensor, Tensor]:
    """Return sampling positions in cells of one level, 0 at the centre of the first: x and y, each (N, Q, heads, P)."""
    center = reference[:, :, None, None]
    if reference.shape[-1] == 4:
        moved = _in_box(center, offsets, offsets.shape[-2])
        return moved[..., 0] * width - 0.5, moved[..., 1] * height - 0.5
    return center[..., 0] * width + offsets[..., 0] - 0.5, center[..., 1] * height + offsets[..., 1] - 0.5


def _places(reference: Tensor, offsets: Tensor, height: Any, width: Any) -> Tensor:
    """Return sampling positions of one level over its size, 0 to 1: offsets and result (N, heads, P, Q, 2)."""
    center = reference[:, None, None]
    if reference.shape[-1] == 4:
        return _in_box(center, offsets, offsets.shape[2])
    # A tensor each: a number would be fixed where a size is traced.
    one = offsets.new_ones(())
    cell = torch.stack([one / width, one / height])
    return center + offsets * cell


def _in_box(center: Tensor, offsets: Tensor, points: int) -> Tensor:
    """Return positions around the centre of a reference box (x, y, w, h); an offset of `points` is half a side of it."""
    return center[..., :2] + offsets / points * center[..., 2:] * 0.5


def corners(x: Tensor, y: Tensor, height: Any, width: Any) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return column, row and bilinear weight of the four cells around each position; a cell outside has weight zero."""
    columns, rows = _neighbours(x, width), _neighbours(y, height)
    return [(column, row, across * down) for row, down in rows for column, across in columns]


def _neighbours(position: Tensor, size: Any) -> list[tuple[Tensor, Tensor]]:
    before = position.floor()
    fraction = position - before
    neighbours = []
    for cell, share in ((before, 1 - fraction), (before + 1, fraction)):
        inside = (cell >= 0) & (cell < size)
        # Clamped while still float: an offset beyond the integers' range must not wrap around.
        neighbours.append((cell.clamp(0, size - 1).long(), share * inside))
    return neighbours
