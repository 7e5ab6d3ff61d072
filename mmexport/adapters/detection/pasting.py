"""Make masks of the size of the picture.

Masks that lie in the cells of their boxes are enlarged bilinearly along each axis and are zero outside, as mmdet's ``_do_paste_mask``
(mmdet/models/roi_heads/mask_heads/fcn_mask_head.py) does by ``grid_sample``; here the weights of an axis are a matrix.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...ops.padding import inside


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


def decided(whole: Tensor, num: Tensor, sizes: Tensor | None) -> Tensor:
    """Return masks (N, K, H, W) as uint8: 1 where `whole` is true, the row is one of `num` (N,), and the pixel is no padding.

    Args:
        sizes: height and width (N, 2) without padding; None if there is none.
    """
    if sizes is not None:
        whole = within(whole, sizes)
    # Masks of rows without a box are empty, whatever the threshold.
    counts = torch.arange(whole.shape[1], device=whole.device) < num[:, None]
    return (whole & counts[..., None, None]).to(torch.uint8)


def within(whole: Tensor, sizes: Tensor) -> Tensor:
    """Return `whole` (N, K, H, W) without what lies beyond height and width (N, 2) of each picture."""
    return whole & inside(sizes, whole.shape[2], whole.shape[3])[:, None]


def read_masks(samples: list[Any], limit: int) -> Tensor:
    """Return the masks that ``test_step`` gives (N, K, H, W), as uint8; smaller pictures are followed by zeros."""
    height, width = (max(sides) for sides in zip(*(sample.ori_shape for sample in samples), strict=True))
    masks = [sample.pred_instances.masks[:limit].to(torch.uint8) for sample in samples]
    padded = masks[0].new_zeros(len(masks), limit, height, width)
    for rows, filling in zip(padded, masks, strict=True):
        rows[:len(filling), :filling.shape[1], :filling.shape[2]] = filling
    return padded
