"""Compute bilinear resizing for exporters: the operator, or two products with matrices of weights.

OpenVINO lays the maps of an Interpolate out in blocks of channels, and reorders them for what follows; decisions over the masks of a
hundred queries, enlarged to the image, took twice the time that way. A product of matrices keeps the layout.

Shapes: x (N, C, H, W); result (N, C, h, w).
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..bilinear import bilinear_weights
from ..op import form_of


def enlarge_masks(masks: Tensor, size: Sequence[Any]) -> Tensor:
    """Resize finite mask logits in the form that the backend prefers: ``operator`` (torch's own, the default) or ``matrix``."""
    if form_of('mask_enlarging') == 'operator':
        return F.interpolate(masks, size=size, mode='bilinear', align_corners=False)  # type: ignore[arg-type]
    down, across = (bilinear_weights(side, target, False, None, masks) for side, target in zip(masks.shape[2:], size, strict=True))
    return torch.matmul(down, torch.matmul(masks, across.transpose(0, 1)))
