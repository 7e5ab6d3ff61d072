"""Move boxes to points of a grid, as Grid R-CNN does with those that stay.

A head gives each box a map of scores for every point. A side of the box becomes the mean of the points on it, weighted by their scores.

Paper: Grid R-CNN Plus, arXiv:1906.05688. Source: mmdet/models/roi_heads/mask_heads/grid_head.py.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...specs import LOGIT_TOLERANCE
from .mask_evidence import with_moves
from .regions import Features, rois_of, sizes_in_doubt

# A head that places boxes by a grid, and the methods of its grid head that are replaced here.
GRID = 'GridRoIHead'
METHODS = ('predict_by_feat', '_predict_by_feat_single')
HEADS = ('GridHead',)


class Placed(NamedTuple):
    """Hold boxes (N, K, 4), and the logits of each point (N, K, P, h * w)."""

    boxes: Tensor
    logits: Tensor


def has_grid(roi_head: Any) -> bool:
    return getattr(roi_head, 'grid_head', None) is not None


def placed(roi_head: Any, features: Features, boxes: Tensor) -> Placed:
    """Return what becomes of boxes (N, K, 4).

    They may reach beyond the picture: mmdet 3.3.0 clamps a copy of them, which changes nothing.
    """
    head, extractor = roi_head.grid_head, roi_head.grid_roi_extractor
    maps = head(extractor(features.levels[:len(extractor.featmap_strides)], rois_of(boxes)))['fused'].unflatten(0, boxes.shape[:2])
    height, width = maps.shape[3:]
    logits = maps.flatten(3)
    scores, position = logits.sigmoid().max(dim=3)
    row = torch.div(position, width, rounding_mode='floor')
    left, top = (torch.tensor([region[axis] for region in head.sub_regions], device=boxes.device) for axis in (0, 1))
    low, sides = boxes[..., :2], boxes[..., 2:] - boxes[..., :2]
    # The map covers the box and half of its side around it.
    x, y = ((place + 0.5) / size * sides[..., axis, None] + (low - sides / 2)[..., axis, None]
            for axis, (place, size) in enumerate(((position - row * width + left, width), (row + top, height))))
    points = torch.arange(head.grid_points, device=boxes.device).view(head.grid_size, head.grid_size)
    ends = [_mean(values, scores, index) for values, index in ((x, points[0]), (y, points[:, 0]), (x, points[-1]), (y, points[:, -1]))]
    return Placed(torch.stack(ends, dim=2), logits)


def _mean(values: Tensor, scores: Tensor, index: Tensor) -> Tensor:
    """Return the mean (N, K) of the values (N, K, P) at `index`, weighted by their scores."""
    values, scores = values.index_select(2, index), scores.index_select(2, index)
    return (values * scores).sum(dim=2) / scores.sum(dim=2)


def in_doubt(roi_head: Any, features: Features, boxes: Tensor) -> Tensor:
    """Return which boxes (N, K) rounding may place elsewhere: two cells of a point nearly tie, or a region is at a limit of its size."""
    first, *others = (placed(roi_head, features, each).logits for each in with_moves(boxes))
    best = first.argmax(dim=3, keepdim=True)
    # By how much the best cell leads each other one, and by how much that changes when the box moves.
    lead, *moved = (logits.gather(3, best) - logits for logits in (first, *others))
    change = torch.stack([(each - lead).abs() for each in moved]).amax(dim=0)
    close = (lead - change <= 2 * LOGIT_TOLERANCE * first.abs().max()).scatter(3, best, False)
    return close.flatten(2).any(dim=2) | sizes_in_doubt(roi_head.grid_roi_extractor, boxes)
