"""Compute the boxes around masks, as mmdet does."""
from __future__ import annotations

import torch
from torch import Tensor


def boxes_of(masks: Tensor) -> Tensor:
    """Compute boxes (N, K, 4) of masks (N, K, H, W) as mmdet's mask2bbox: x1, y1, x2 + 1, y2 + 1; zeros for an empty mask."""
    return boxes_around(masks.any(dim=2), masks.any(dim=3))


def boxes_around(columns: Tensor, rows: Tensor) -> Tensor:
    """Compute boxes (N, K, 4) of masks from the `columns` (N, K, W) and `rows` (N, K, H) that they fill. See `boxes_of`."""
    corners = []
    for filled in (columns, rows):
        position = torch.arange(filled.shape[-1], device=filled.device).expand_as(filled)
        first = torch.where(filled, position, torch.full_like(position, 1 << 30)).amin(dim=-1)
        last = torch.where(filled, position + 1, torch.zeros_like(position)).amax(dim=-1)
        corners.append((torch.where(filled.any(dim=-1), first, torch.zeros_like(first)), last))
    (x1, x2), (y1, y2) = corners
    return torch.stack([x1, y1, x2, y2], dim=-1).to(torch.float32)
