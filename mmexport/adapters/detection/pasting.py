"""Enlarge masks, which lie in the cells of their boxes, to the picture.

Bilinear along each axis and zero outside, as mmdet's ``_do_paste_mask`` (mmdet/models/roi_heads/mask_heads/fcn_mask_head.py) does by
``grid_sample``; here the weights of an axis are a matrix.
"""
from __future__ import annotations

import torch
from torch import Tensor


def pasted(masks: Tensor, boxes: Tensor, height: int, width: int) -> Tensor:
    """Return masks (K, h, w) of boxes (K, 4) in pixels as (K, height, width). A box without area has none."""
    rows = _weights(boxes[:, 1], boxes[:, 3], height, masks.shape[1])
    columns = _weights(boxes[:, 0], boxes[:, 2], width, masks.shape[2])
    return rows @ masks @ columns.transpose(1, 2)


def _weights(low: Tensor, high: Tensor, pixels: int, cells: int) -> Tensor:
    """Return what each pixel takes of each cell along one axis (K, pixels, cells)."""
    centres = torch.arange(pixels, device=low.device) + 0.5
    size = (high - low)[:, None]
    places = (centres - low[:, None]) / torch.where(size > 0, size, torch.ones_like(size)) * cells - 0.5
    weights = (1 - (places[..., None] - torch.arange(cells, device=low.device)).abs()).clamp(min=0)
    return weights * (size > 0)[..., None]
