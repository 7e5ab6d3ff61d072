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
    """Hold boxes (N, K, 4), the logits of each point (N, K, P, h * w), and h and w."""

    boxes: Tensor
    logits: Tensor
    shape: Any


class Doubts(NamedTuple):
    """Hold which boxes (N, K) rounding may place elsewhere, and where that is."""

    unsure: Tensor
    middle: Tensor
    """(N, K, 4), of the places where a box may be."""
    slack: Tensor
    """(N, K, 4), how far they are from the middle."""


def has_grid(roi_head: Any) -> bool:
    return getattr(roi_head, 'grid_head', None) is not None


def placed(roi_head: Any, features: Features, boxes: Tensor) -> Placed:
    """Return what becomes of boxes (N, K, 4).

    They may reach beyond the picture: mmdet 3.3.0 clamps a copy of them, which changes nothing.
    """
    head, extractor = roi_head.grid_head, roi_head.grid_roi_extractor
    maps = head(extractor(features.levels[:len(extractor.featmap_strides)], rois_of(boxes)))['fused'].unflatten(0, boxes.shape[:2])
    logits = maps.flatten(3)
    scores, position = logits.sigmoid().max(dim=3)
    x, y = (values[..., 0] for values in _coordinates(head, boxes, position[..., None], maps.shape[3:]))
    return Placed(_ends(head, x, y, scores), logits, maps.shape[3:])


def _coordinates(head: Any, boxes: Tensor, position: Tensor, shape: Any) -> tuple[Tensor, Tensor]:
    """Return x and y (N, K, P, C) of cells of each point's map, which covers the box and half of its side around it.

    Args:
        position: numbers of cells (N, K, P, C).
        shape: height and width of a map.
    """
    height, width = shape
    row = torch.div(position, width, rounding_mode='floor')
    left, top = (torch.tensor([region[axis] for region in head.sub_regions], device=boxes.device)[:, None] for axis in (0, 1))
    sides = boxes[..., 2:] - boxes[..., :2]
    starts = boxes[..., :2] - sides / 2
    x, y = ((place + 0.5) / size * sides[..., axis, None, None] + starts[..., axis, None, None]
            for axis, (place, size) in enumerate(((position - row * width + left, width), (row + top, height))))
    return x, y


def _ends(head: Any, x: Tensor, y: Tensor, scores: Tensor) -> Tensor:
    """Return boxes (N, K, 4) of points (N, K, P)."""
    points = torch.arange(head.grid_points, device=x.device).view(head.grid_size, head.grid_size)
    return torch.stack([_mean(values, scores, index) for values, index in (
        (x, points[0]), (y, points[:, 0]), (x, points[-1]), (y, points[:, -1]))], dim=2)


def _mean(values: Tensor, scores: Tensor, index: Tensor) -> Tensor:
    """Return the mean (N, K) of the values (N, K, P) at `index`, weighted by their scores."""
    values, scores = values.index_select(2, index), scores.index_select(2, index)
    return (values * scores).sum(dim=2) / scores.sum(dim=2)


def in_doubt(roi_head: Any, features: Features, boxes: Tensor) -> Doubts:
    """Return which boxes (N, K, 4) rounding may place elsewhere, and where.

    Two cells of a point nearly tie, and each may be the point; or the region is at a limit of its size, where nothing is known of the maps.
    """
    head = roi_head.grid_head
    (_, first, shape), *others = (placed(roi_head, features, each) for each in with_moves(boxes))
    scores, best = first.sigmoid().max(dim=3, keepdim=True)
    # By how much the best cell leads each other one, and by how much that changes when the box moves.
    lead, *moved = (logits.gather(3, best) - logits for logits in (first, *(other.logits for other in others)))
    change = torch.stack([(each - lead).abs() for each in moved]).amax(dim=0)
    close = (lead - change <= 2 * LOGIT_TOLERANCE * first.abs().max()).scatter(3, best, True)
    cells = torch.arange(first.shape[3], device=boxes.device).expand_as(first)
    x, y = _coordinates(head, boxes, cells, shape)
    none = torch.full_like(x, float('inf'))
    low = _ends(head, torch.where(close, x, none).amin(dim=3), torch.where(close, y, none).amin(dim=3), scores[..., 0])
    high = _ends(head, torch.where(close, x, -none).amax(dim=3), torch.where(close, y, -none).amax(dim=3), scores[..., 0])
    at_limit = sizes_in_doubt(roi_head.grid_roi_extractor, boxes)
    sides = (boxes[..., 2:] - boxes[..., :2]).repeat(1, 1, 2)
    low, high = (torch.where(at_limit[..., None], anywhere, end) for anywhere, end in ((boxes - sides, low), (boxes + sides, high)))
    return Doubts((close.sum(dim=3) > 1).any(dim=2) | at_limit, (low + high) / 2, (high - low) / 2)


def with_places(doubts: dict[str, Tensor], roi_head: Any, features: Features, rows: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """Return the doubts about `rows` (boxes, scores, labels, num) with those about their places.

    A row that rounding may place elsewhere is one that may be missing, and one that may be new, `maybe_box_slack` (N, J, 4) around.
    """
    boxes, scores, labels, num = rows
    of_rows = in_doubt(roi_head, features, boxes)
    of_maybe = in_doubt(roi_head, features, doubts['maybe'][..., :4].clamp(min=0))
    there = torch.arange(boxes.shape[1], device=num.device) < num[:, None]
    moved = torch.where(of_rows.unsure & there, labels, torch.full_like(labels, -1)).to(scores)
    elsewhere = torch.cat([of_rows.middle, scores[..., None], moved[..., None]], dim=2)
    return {**doubts, 'unsure': doubts['unsure'] | of_rows.unsure,
            'maybe': torch.cat([torch.cat([of_maybe.middle, doubts['maybe'][..., 4:]], dim=2), elsewhere], dim=1),
            'maybe_slack': torch.cat([doubts['maybe_slack'], doubts['row_slack']], dim=1),
            'maybe_box_slack': torch.cat([of_maybe.slack, of_rows.slack], dim=1)}
