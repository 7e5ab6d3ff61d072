"""Compute bilinear values: the weights of a resize as a matrix, and values at given points."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def bilinear_weights(side: Any, size: Any, align_corners: bool, factor: float | None, like: Tensor) -> Tensor:
    """Return the weights (size, side): row i has those of the `side` elements in element i of the result.

    Source: aten/src/ATen/native/UpSample.h, ``area_pixel_compute_source_index``.
    """
    # Positions and weights are computed in float32 at least, whatever the dtype of the picture is.
    real = torch.promote_types(like.dtype, torch.float32)
    position = torch.arange(size, device=like.device, dtype=real)
    one = torch.ones((), device=like.device, dtype=real)
    if align_corners:
        # A single element takes the first one.
        at = position * ((one * side - 1) / (one * size - 1).clamp(min=1))
    else:
        at = ((position + 0.5) * (1 / factor if factor else one * side / (one * size)) - 0.5).clamp(min=0)
    low = at.floor()
    high = (low + 1).clamp(max=one * (side - 1))
    of = torch.arange(side, device=like.device, dtype=real)
    share = (at - low)[:, None]
    return ((of == low[:, None]) * (1 - share) + (of == high[:, None]) * share).to(like.dtype)


def sampled(maps: Tensor, image: Tensor, points: Tensor) -> Tensor:
    """Return the values (R, C, P) of maps (N, C, H, W) at points (R, P, 2); outside there are zeros.

    Args:
        image: (R,), the number of the map of each row.
        points: x and y in cells: the centre of the first cell is 0.
    """
    height, width = maps.shape[2:]
    cells = maps.permute(0, 2, 3, 1).flatten(0, 2)
    low = points.floor()
    share, total = points - low, None
    for down, right in ((0, 0), (0, 1), (1, 0), (1, 1)):
        x, y = (low[..., axis].long() + step for axis, step in ((0, right), (1, down)))
        weight = (share[..., 0] if right else 1 - share[..., 0]) * (share[..., 1] if down else 1 - share[..., 1])
        weight = weight * ((x >= 0) & (x < width) & (y >= 0) & (y < height))
        # A size that is open is no limit for `clamp`.
        x, y = (place.clamp(min=0).minimum(place * 0 + (side - 1)) for place, side in ((x, width), (y, height)))
        index = (image[:, None] * height + y) * width + x
        part = cells.index_select(0, index.flatten()).unflatten(0, index.shape) * weight[..., None]
        total = part if total is None else total + part
    assert total is not None
    return total.transpose(1, 2)
