"""Tell by how much masks may be off, and scores that depend on them."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ..specs import LOGIT_TOLERANCE
from .masks import extractors_of, masks_of
from .regions import Features, semantic_extractors, sizes_in_doubt

# How each coordinate of a box moves: larger, aside; smaller, to the other side.
MOVES = ((-1, -1, 1, 1), (1, 1, 1, 1), (1, 1, -1, -1), (-1, -1, -1, -1))


def moved_boxes(boxes: Tensor, moves: Sequence[Sequence[int]] = MOVES) -> Iterator[Tensor]:
    """Give boxes (N, K, 4), moved by the tolerance."""
    for signs in moves:
        yield boxes + LOGIT_TOLERANCE * float(boxes.abs().max()) * boxes.new_tensor(signs)


def slack_of_masks(masks_at: Callable[[Tensor], Tensor], boxes: Tensor) -> Tensor:
    """Return by how much masks change where their boxes move by the tolerance (N, K).

    Args:
        masks_at: computes masks (N, K, h, w) of boxes.
    """
    masks = masks_at(boxes)
    return torch.stack([(masks_at(moved) - masks).abs().amax(dim=(2, 3)) for moved in moved_boxes(boxes, MOVES[:2])]).amax(dim=0)


def sizes_of_masks_in_doubt(extractors: Sequence[Any], boxes: Tensor) -> Tensor:
    """Return where rounding may change the level or the samples of a mask (N, K)."""
    return torch.stack([sizes_in_doubt(extractor, boxes) for extractor in extractors]).any(dim=0)


def mask_doubts(roi_head: Any, features: Features, boxes: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Return `mask_slack` and `mask_unsure` (N, K): what moving its box by the tolerance does to a mask.

    Where the head scores masks, also that factor, `quality`, and `quality_slack` (N, K).
    """
    _, quality = masks_of(roi_head, features, boxes, labels)
    of_quality = torch.zeros_like(boxes[..., 0])

    def masks_at(moved: Tensor) -> Tensor:
        nonlocal of_quality
        masks, other = masks_of(roi_head, features, moved, labels)
        if quality is not None and other is not None:
            of_quality = torch.maximum(of_quality, (other - quality).abs())
        return masks

    unsure = sizes_of_masks_in_doubt((*extractors_of(roi_head), *semantic_extractors(roi_head, 'mask')), boxes)
    doubts = {'mask_slack': slack_of_masks(masks_at, boxes), 'mask_unsure': unsure}
    if quality is None:
        return doubts
    largest = quality.abs().max()
    return {**doubts, 'quality': quality, 'quality_slack': of_quality + LOGIT_TOLERANCE * largest + unsure * largest}


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
