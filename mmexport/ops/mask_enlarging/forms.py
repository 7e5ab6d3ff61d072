"""Compute bilinear resizing for exporters: the operator, or two products with matrices of weights.

OpenVINO lays the maps of an Interpolate out in blocks of channels, and reorders them for what follows; decisions over the masks of a
hundred queries, enlarged to the image, took twice the time that way. A product of matrices keeps the layout.

Shapes: x (N, C, H, W); result (N, C, h, w).
Source: aten/src/ATen/native/UpSample.h, ``area_pixel_compute_source_index``.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..op import form_of


def enlarge_masks(masks: Tensor, size: Sequence[Any]) -> Tensor:
    """Resize finite mask logits in the form that the backend prefers: ``operator`` (torch's own, the default) or ``matrix``."""
    if form_of('mask_enlarging') == 'operator':
        return F.interpolate(masks, size=size, mode='bilinear', align_corners=False)  # type: ignore[arg-type]
    down, across = (weights(side, target, False, None, masks) for side, target in zip(masks.shape[2:], size, strict=True))
    return torch.matmul(down, torch.matmul(masks, across.transpose(0, 1)))


def weights(side: Any, size: Any, align_corners: bool, factor: float | None, like: Tensor) -> Tensor:
    """Return the weights (size, side): row i has those of the `side` elements in element i of the result.

    Source: see the module.
    """
    # Places and shares in no fewer bits than float32, whatever the picture is in.
    real = torch.promote_types(like.dtype, torch.float32)
    place = torch.arange(size, device=like.device, dtype=real)
    one = torch.ones((), device=like.device, dtype=real)
    if align_corners:
        # A single element takes the first one.
        at = place * ((one * side - 1) / (one * size - 1).clamp(min=1))
    else:
        at = ((place + 0.5) * (1 / factor if factor else one * side / (one * size)) - 0.5).clamp(min=0)
    low = at.floor()
    high = (low + 1).clamp(max=one * (side - 1))
    of = torch.arange(side, device=like.device, dtype=real)
    share = (at - low)[:, None]
    return ((of == low[:, None]) * (1 - share) + (of == high[:, None]) * share).to(like.dtype)
