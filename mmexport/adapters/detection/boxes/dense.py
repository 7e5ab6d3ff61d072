"""Convert the maps of dense heads to candidates, for a whole batch.

Source: mmdet/models/dense_heads/base_dense_head.py, which decodes one picture after the other. Other heads: `head_decoders`.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ....ops.ranking import rows_at
from ....ops.sigmoid import sigmoid
from .candidates import Candidates, best_pairs, candidate_limit, joined

Maps = Sequence[Sequence[Tensor]]


def base_head(head: Any, maps: Maps, sizes: Tensor) -> Candidates:
    """Convert what `BaseDenseHead` decodes: anchors or points, with or without a factor of the score.

    Args:
        sizes: height and width (N, 2) that boxes are clipped to.
    """
    def boxes(_: int, priors: Tensor, deltas: Tensor) -> Tensor:
        return decoded(head.bbox_coder, priors, deltas, sizes)

    return by_level(head, maps, head.bbox_coder.encode_size, boxes)


def by_level(head: Any, maps: Maps, width: int, boxes_of: Callable[[int, Tensor, Tensor], Tensor]) -> Candidates:
    """Take the best pairs of each level, and compute their boxes alone; see `with_places`."""
    return with_places(head, maps, width, boxes_of)[0]


def with_places(head: Any, maps: Maps, width: int, boxes_of: Callable[[int, Tensor, Tensor], Tensor]) -> tuple[Candidates, Tensor]:
    """Return the best pairs of each level, and their positions (N, M) among all rows.

    Args:
        maps: of classes, of boxes, and maybe one with a factor of the scores; each a tensor a level.
        width: numbers that describe a box.
        boxes_of: computes boxes (N, K, 4) from the number of the level, priors (N, K, ...) and what describes the boxes (N, K, width).
    """
    levels, places, before = [], [], 0
    for number, priors in enumerate(priors_of(head, maps[0])):
        scores, index, labels, valid = best_scores(head, rows_of(maps[0][number], head.cls_out_channels))
        boxes = boxes_of(number, priors[index], rows_at(rows_of(maps[1][number], width), index))
        for factors in maps[2:]:
            scores = scores * sigmoid(rows_of(factors[number], 1)[..., 0].gather(1, index))
        levels.append(Candidates(boxes, scores, labels, valid))
        places.append(index + before)
        before = before + priors.shape[0]
    return joined(levels), torch.cat(places, dim=1)


def rows_of(values: Tensor, width: int) -> Tensor:
    """Return a map (N, A * width, H, W) as rows (N, H * W * A, width)."""
    return values.permute(0, 2, 3, 1).reshape(values.shape[0], -1, width)


def priors_of(head: Any, cls_maps: Sequence[Tensor]) -> list[Tensor]:
    priors: list[Tensor] = head.prior_generator.grid_priors([scores.shape[2:] for scores in cls_maps], dtype=cls_maps[0].dtype,
                                                            device=cls_maps[0].device)
    return priors


def best_scores(head: Any, logits: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return score, position and class of the best pairs (N, K). The last tensor says which are valid."""
    # FoveaBox has no such attribute: sigmoid it is.
    plain, cfg = getattr(head, 'use_sigmoid_cls', True), head.test_cfg
    values, index, labels = best_pairs(logits if plain else logits.softmax(dim=-1), candidate_limit(cfg), 0 if plain else 1)
    scores = sigmoid(values) if plain else values
    return torch.where(values > float('-inf'), scores, torch.zeros_like(scores)), index, labels, scores > cfg.get('score_thr', 0)


def decoded(coder: Any, priors: Tensor, deltas: Tensor, sizes: Tensor) -> Tensor:
    """Return boxes (N, K, 4) of deltas (N, K, D), clipped as the coder would clip them to one size."""
    boxes = coder.decode(priors.flatten(0, 1), deltas.flatten(0, 1), max_shape=None).view(*deltas.shape[:2], 4)
    # That of mmdet 1.x counts a box's last pixel: it ends before the picture's border.
    inset = 1 if any(cls.__name__ == 'LegacyDeltaXYWHBBoxCoder' for cls in type(coder).__mro__) else 0
    return clipped(boxes, sizes - inset) if getattr(coder, 'clip_border', True) else boxes


def clipped(boxes: Tensor, sizes: Tensor) -> Tensor:
    """Return boxes (N, K, 4) within height and width (N, 2)."""
    return torch.minimum(boxes.clamp(min=0), sizes.flip(1).repeat(1, 2)[:, None].to(boxes))
