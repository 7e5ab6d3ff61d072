"""Compute the weights of bilinear resizing as a matrix."""
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
