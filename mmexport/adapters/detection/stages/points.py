"""Compute masks again at their most uncertain cells, as PointRend does; only the mask of each row's label is kept.

Paper: PointRend, CVPR 2020. Source: mmdet/models/roi_heads/point_rend_roi_head.py, for one picture and all classes.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ....ops.bilinear import sampled
from ...specs import LOGIT_TOLERANCE
from .regions import Features, rois_of

# A head that refines masks at points.
POINTS = 'PointRendRoIHead'


class Step(NamedTuple):
    """Hold the logits (R, h * w) before a step, its cells (R, P), and the size (h, w)."""

    logits: Tensor
    cells: Tensor
    size: tuple[int, int]


class Refined(NamedTuple):
    """Hold the masks (R, H, W), and the steps that computed some of their cells again; None where a step only enlarged them."""

    masks: Tensor
    steps: list[Step | None]


def has_points(roi_head: Any) -> bool:
    return getattr(roi_head, 'point_head', None) is not None


def sides(roi_head: Any) -> list[tuple[int, int]]:
    """Return the size of a mask before and after each step."""
    cfg, (height, width) = roi_head.test_cfg, roi_head.mask_head.output_size
    factors = [int(cfg.scale_factor) ** step for step in range(int(cfg.subdivision_steps) + 1)]
    return [(height * factor, width * factor) for factor in factors]


def refined(roi_head: Any, features: Features, boxes: Tensor, labels: Tensor, coarse: Tensor,
            chosen: Sequence[Step | None] = ()) -> Refined:
    """Return the refined masks of boxes (N, K, 4).

    Args:
        coarse: logits (N * K, C, h, w) of all classes.
        chosen: steps whose cells are taken instead of the most uncertain ones.
    """
    cfg, rois, head = roi_head.test_cfg, rois_of(boxes), roi_head.point_head
    label = torch.zeros_like(labels.flatten()) if head.class_agnostic else labels.flatten()
    masks = _of_label(coarse, label)
    steps: list[Step | None] = []
    sizes, count = sides(roi_head), int(cfg.subdivision_num_points)
    for number, (height, width) in enumerate(sizes[1:]):
        masks = F.interpolate(masks[:, None], size=(height, width), mode='bilinear')[:, 0]
        # Upstream leaves out a step where the next one computes every cell.
        if count >= int(cfg.scale_factor) ** 2 * height * width and number < len(sizes) - 2:
            steps.append(None)
            continue
        logits, given = masks.flatten(1), chosen[number] if chosen else None
        cells = given.cells if given else (-logits.abs()).topk(min(count, height * width), dim=1).indices
        row = torch.div(cells, width, rounding_mode='floor')
        points = torch.stack([(cells - row * width + 0.5) / width, (row + 0.5) / height], dim=2)
        answers = head(_fine(roi_head, features, rois, points), _coarse(coarse, points))
        steps.append(Step(logits, cells, (height, width)))
        masks = logits.scatter(1, cells, _of_label(answers, label)).unflatten(1, (height, width))
    return Refined(masks, steps)


def _of_label(values: Tensor, label: Tensor) -> Tensor:
    """Return of `values` (R, C, ...) those of `label` (R,)."""
    index = label.view(-1, *([1] * (values.dim() - 1))).expand(-1, 1, *values.shape[2:])
    return values.gather(1, index)[:, 0]


def _fine(roi_head: Any, features: Features, rois: Tensor, points: Tensor) -> Tensor:
    """Return the features (R, C, P) of all levels at points (R, P, 2) of the regions."""
    extractor = roi_head.mask_roi_extractor
    low, side = rois[:, None, 1:3], (rois[:, 3:5] - rois[:, 1:3])[:, None]
    places, levels = low + points * side, zip(features.levels, extractor.featmap_strides, strict=False)
    return torch.cat([sampled(level, rois[:, 0].long(), places / stride - 0.5) for level, stride in levels], dim=1)


def _coarse(coarse: Tensor, points: Tensor) -> Tensor:
    """Return the coarse logits (R, C, P) at points (R, P, 2) of the regions."""
    size = points.new_tensor([coarse.shape[3], coarse.shape[2]])
    return sampled(coarse, torch.arange(coarse.shape[0], device=coarse.device), points * size - 0.5)


def doubts(base: Refined, moved: Sequence[Refined]) -> tuple[Tensor, Tensor]:
    """Return by how much the masks may be off (R,), and which cells (R, H, W) are unknown.

    Rounding may choose such a cell to be computed again or not, or it depends on one.

    Args:
        moved: what other boxes give within the tolerance, with the cells of `base`.
    """
    unknown = torch.zeros_like(base.masks[:, :1, :1], dtype=torch.bool)
    scale = float(base.masks.abs().max())
    for number, step in enumerate(base.steps):
        if step is None:
            continue
        before = _enlarged(unknown, step.size).flatten(1)
        slack = _change(step.logits, [other.steps[number].logits for other in moved], before)[:, None] + LOGIT_TOLERANCE * scale  # type: ignore[union-attr]
        low, high = (torch.where(before, torch.full_like(step.logits, limit), sign * slack - step.logits.abs())
                     for sign, limit in ((-1, float('-inf')), (1, 0.0)))
        count, cells = step.cells.shape[1], low.shape[1]
        sure = cells - torch.searchsorted(high.sort(dim=1).values, low) - 1 < count
        maybe = cells - torch.searchsorted(low.sort(dim=1).values, high, right=True) < count
        unknown = ((maybe | before) & ~sure).unflatten(1, step.size)
    unknown = _enlarged(unknown, (base.masks.shape[1], base.masks.shape[2]))
    return _change(base.masks.flatten(1), [other.masks.flatten(1) for other in moved], unknown.flatten(1)), unknown


def _enlarged(unknown: Tensor, size: tuple[int, int]) -> Tensor:
    """Return which cells (R, h, w) of a larger mask depend on one that is unknown."""
    return F.interpolate(unknown[:, None].float(), size=size, mode='bilinear')[:, 0] > 0


def _change(values: Tensor, others: Sequence[Tensor], unknown: Tensor) -> Tensor:
    """Return the largest change (R,) of cells that are known."""
    return torch.stack([((other - values).abs() * ~unknown).amax(dim=1) for other in others]).amax(dim=0)
