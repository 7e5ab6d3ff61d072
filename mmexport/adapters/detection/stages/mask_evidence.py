"""Tell by how much masks may be off, and scores that depend on them."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...specs import LOGIT_TOLERANCE
from .masks import extractors_of, masks_of, of_stages
from .points import Refined, has_points, refined
from .points import doubts as doubts_of
from .regions import Features, rois_of, semantic_extractors, sizes_in_doubt

# How each coordinate of a box moves: larger, aside; smaller, to the other side.
MOVES = ((-1, -1, 1, 1), (1, 1, 1, 1), (1, 1, -1, -1), (-1, -1, -1, -1))


class MovedMasks(NamedTuple):
    """Hold boxes (N, K, 4) that are moved by the tolerance, and their masks (N, K, h, w).

    Attributes:
        unknown: cells (N, K, h, w) that rounding may change by any amount; None if there are none.
    """

    boxes: list[Tensor]
    masks: list[Tensor]
    unknown: Tensor | None = None


def moved_boxes(boxes: Tensor, moves: Sequence[Sequence[int]] = MOVES) -> Iterator[Tensor]:
    """Give boxes (N, K, 4), moved by the tolerance. None of them is turned inside out, which RoIAlign refuses."""
    for signs in moves:
        moved = boxes + LOGIT_TOLERANCE * float(boxes.abs().max()) * boxes.new_tensor(signs)
        yield torch.cat([moved[..., :2], torch.maximum(moved[..., :2], moved[..., 2:])], dim=2)


def with_moves(boxes: Tensor) -> list[Tensor]:
    """Return the boxes (N, K, 4), and those that tell how their masks change."""
    return [boxes, *moved_boxes(boxes, MOVES[:2])]


def largest_change(values: Sequence[Tensor]) -> Tensor:
    """Return the largest change (N, K) from the first of `values` (N, K, ...), one for each of `with_moves`."""
    first, *others = (each.flatten(2) if each.dim() > 2 else each[..., None] for each in values)
    return torch.stack([(each - first).abs().amax(dim=2) for each in others]).amax(dim=0)


def sizes_of_masks_in_doubt(extractors: Sequence[Any], boxes: Tensor) -> Tensor:
    """Return where rounding may change the level or the samples of a mask (N, K)."""
    return torch.stack([sizes_in_doubt(extractor, boxes) for extractor in extractors]).any(dim=0)


def mask_doubts(roi_head: Any, features: Features, boxes: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return `mask_slack` and `mask_unsure` (N, K): what moving its box by the tolerance does to a mask.

    Where the head scores masks, also that factor, `quality`, and `quality_slack` (N, K). Where it refines them, also `mask_near`
    (N, K, h, w): cells that it may compute again or not.
    """
    if has_points(roi_head):
        return _of_points(roi_head, features, boxes, labels)
    masks, qualities = zip(*(masks_of(roi_head, features, each, labels) for each in with_moves(boxes)), strict=True)
    unsure = sizes_of_masks_in_doubt((*extractors_of(roi_head), *semantic_extractors(roi_head, 'mask')), boxes)
    doubts, quality = {'mask_slack': largest_change(masks), 'mask_unsure': unsure}, qualities[0]
    if quality is None:
        return doubts
    largest = quality.abs().max()
    return {**doubts, 'quality': quality, 'quality_slack': largest_change(qualities) + LOGIT_TOLERANCE * largest + unsure * largest}


def masks_where_moved(roi_head: Any, features: Features, boxes: Tensor, labels: Tensor) -> MovedMasks:
    """Return the masks that boxes (N, K, 4) have where they are moved."""
    each = list(moved_boxes(boxes))
    if not has_points(roi_head):
        return MovedMasks(each, [masks_of(roi_head, features, moved, labels)[0] for moved in each])
    base, *others = _refinements(roi_head, features, [boxes, *each], labels)
    shape = boxes.shape[:2]
    return MovedMasks(each, [other.masks.unflatten(0, shape) for other in others], doubts_of(base, others)[1].unflatten(0, shape))


def _refinements(roi_head: Any, features: Features, boxes: Sequence[Tensor], labels: Tensor) -> list[Refined]:
    """Return the refined masks of each of `boxes`, all with the cells that the first ones choose."""
    each: list[Refined] = []
    for moved in boxes:
        coarse = of_stages(roi_head, features, rois_of(moved))[0]['mask_preds']
        each.append(refined(roi_head, features, moved, labels, coarse, each[0].steps if each else ()))
    return each


def _of_points(roi_head: Any, features: Features, boxes: Tensor, labels: Tensor) -> dict[str, Tensor]:
    each = _refinements(roi_head, features, with_moves(boxes), labels)
    slack, unknown = doubts_of(each[0], each[1:])
    shape = boxes.shape[:2]
    return {'mask_slack': slack.unflatten(0, shape), 'mask_near': unknown.unflatten(0, shape),
            'mask_unsure': torch.zeros(shape, dtype=torch.bool, device=boxes.device)}


def with_masks(doubts: dict[str, Tensor], roi_head: Any, features: Features, rows: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """Return the doubts about rows and their masks; scores are multiplied by what the head says of each mask.

    Args:
        doubts: as `close_calls` gives them, of scores that are not multiplied.
        rows: boxes, scores and labels of eager, before that too.
    """
    boxes, scores, labels = rows
    of_masks = mask_doubts(roi_head, features, boxes, labels)
    if 'quality' not in of_masks:
        return {**doubts, **of_masks}
    quality, slack = of_masks.pop('quality'), of_masks.pop('quality_slack')
    maybe = doubts['maybe'].clone()
    others = mask_doubts(roi_head, features, maybe[..., :4], maybe[..., 5].clamp(min=0).long())
    maybe_slack = doubts['maybe_slack'] * others['quality'].abs() + maybe[..., 4].abs() * others['quality_slack']
    maybe[..., 4] = maybe[..., 4] * others['quality']
    return {**doubts, **of_masks, 'row_slack': doubts['row_slack'] * quality.abs() + scores.abs() * slack, 'maybe': maybe,
            'maybe_slack': maybe_slack}
