"""Choose the candidates of a dense head: mmdet's ``filter_scores_and_topk`` for a batch.

There are as many candidates for every picture, and a flag says which of them count.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ....errors import UnsupportedModelError
from ....ops.ranking import rows_at

# Above so many, most levels have fewer places than candidates.
MANY = 5000


class Candidates(NamedTuple):
    """Hold boxes (N, M, 4), scores (N, M), labels (N, M), and which of them count (N, M)."""

    boxes: Tensor
    scores: Tensor
    labels: Tensor
    valid: Tensor


def candidate_limit(cfg: Mapping[str, Any]) -> int:
    """Return how many candidates of each level are looked at.

    Raises:
        UnsupportedModelError: the config has no limit.
    """
    limit = int(cfg.get('nms_pre', -1))
    if limit <= 0:
        raise UnsupportedModelError(f'test_cfg.nms_pre is {limit}, and a file looks at as many candidates of every picture: set it, to '
                                    "1000 as in mmdet's configs, or use --outputs raw")
    return limit


def best_pairs(scores: Tensor, count: int, background: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return score, place and class of the best pairs of them (N, count), the best first.

    The best pairs lie in the places whose best class is best, so that no list of all pairs is sorted. Where there are fewer than `count`
    places, the score is -inf.

    Args:
        scores: (N, P, C), of any size P; logits if the score grows with them.
        background: how many of the last classes count for none.
    """
    classes = scores.shape[2] - background
    if count > MANY:
        values, pairs = F.pad(without(scores, background).flatten(1), (0, count), value=float('-inf')).topk(count, dim=1)
        pairs = torch.where(values > float('-inf'), pairs, torch.zeros_like(pairs))
        return values, torch.div(pairs, classes, rounding_mode='floor'), pairs % classes
    rows, chosen, inside = best_rows(scores, count, background)
    rows = torch.where(inside.unsqueeze(2), rows, torch.full_like(rows, float('-inf')))
    values, pairs = rows.flatten(1).topk(count, dim=1)
    return values, chosen.gather(1, torch.div(pairs, classes, rounding_mode='floor')), pairs % classes


def best_rows(scores: Tensor, count: int, background: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best rows (N, count, C - background) of `scores` (N, P, C), their positions (N, count), and which exist."""
    index, inside = best_positions(without(scores, background), count)
    # Not rows of what was sliced: OpenVINO 2026.4 drops a slice before such a gather, and then refuses the shapes or gives none.
    return without(rows_at(scores, index), background), index, inside


def without(scores: Tensor, background: int) -> Tensor:
    """Return `scores` (..., C) without the last `background` classes."""
    return scores[..., :-background] if background else scores


def best_positions(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the positions (N, count) of the best `scores` (N, P, C), and which exist."""
    index = F.pad(scores.amax(dim=2), (0, count), value=float('-inf')).topk(count, dim=1).indices
    return index.clamp(max=scores.shape[1] - 1), index < scores.shape[1]


def joined(levels: list[Candidates]) -> Candidates:
    """Return the candidates of all levels as one list."""
    return Candidates(*(torch.cat(parts, dim=1) for parts in zip(*levels, strict=True)))


def with_near_ones(candidates: Candidates, slacks: Tensor, threshold: float) -> Candidates:
    """Return candidates of which those count, too, whose score is a little under the threshold.

    In a file it may be over it. A head with a factor compares the score without it: the product of one that counts may be far below.
    Scores of 0 are left out. They fill up lists, and are near a threshold of 0: thousands of equal boxes would be compared with each other.
    """
    near = (candidates.scores + slacks >= threshold) & (candidates.scores > 0)
    return candidates._replace(valid=candidates.valid | near)
