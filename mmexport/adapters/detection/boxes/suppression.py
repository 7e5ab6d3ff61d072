"""Remove overlapping candidates: mmcv's ``batched_nms`` for a batch.

Every picture gets as many rows; those that nothing fills are zero.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ....errors import UnsupportedModelError
from ....ops.nms import first_kept, moved_apart
from ....ops.ranking import ranked, rows_at
from .candidates import Candidates

# Rows of a head without a limit, as YOLOX.
ROWS = 300


def check_suppression(cfg: Mapping[str, Any]) -> None:
    """Raise if ``test_cfg`` asks for a suppression that is not written here."""
    kind = (cfg.get('nms') or {}).get('type', 'none')
    if kind != 'nms':
        raise UnsupportedModelError(f'test_cfg.nms has the type {kind!r}: only nms is supported yet; use --outputs raw')


def limit_of(cfg: Mapping[str, Any]) -> int:
    """Return the number of rows of a picture."""
    limits = [int(limit) for limit in (cfg.get('max_per_img', -1), cfg['nms'].get('max_num', -1)) if int(limit) > 0]
    return min(limits, default=ROWS)


def threshold_of(cfg: Mapping[str, Any]) -> float:
    return float(cfg['nms'].get('iou_threshold', cfg['nms'].get('iou_thr')))


def sorted_candidates(candidates: Candidates, cfg: Mapping[str, Any]) -> tuple[Candidates, Tensor, Tensor]:
    """Return the candidates by descending score, those that do not count last.

    Then the boxes (N, M, 4) that are compared, and where each candidate was before (N, M).
    """
    boxes, scores, labels, valid = candidates
    if int(cfg.get('min_bbox_size', -1)) >= 0:
        sides = boxes[..., 2:] - boxes[..., :2]
        valid = valid & (sides > cfg['min_bbox_size']).all(dim=2)
    threshold = float(cfg['nms'].get('score_threshold', 0))
    compared = valid & (scores > threshold) if threshold > 0 else valid
    moved = boxes if cfg['nms'].get('class_agnostic', False) else moved_apart(boxes, labels, valid)
    order = ranked(torch.where(compared, scores, torch.full_like(scores, -1.0)))
    ordered = Candidates(rows_at(boxes, order), scores.gather(1, order), labels.gather(1, order), compared.gather(1, order))
    return ordered, rows_at(moved, order), order


def kept(candidates: Candidates, cfg: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return `boxes` (N, K, 4), `scores` (N, K), `labels` (N, K) of the best boxes that stay, and `num` (N,); other rows are zero."""
    return rows_kept(candidates, *places_kept(candidates, cfg))


def rows_kept(candidates: Candidates, index: Tensor, num: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what `kept` does, given what `places_kept` does."""
    counts = torch.arange(index.shape[1], device=index.device) < num[:, None]
    boxes, scores, labels = rows_at(candidates.boxes, index), candidates.scores.gather(1, index), candidates.labels.gather(1, index)
    return boxes * counts[..., None], scores * counts, labels * counts, num


def places_kept(candidates: Candidates, cfg: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """Return which candidates stay (N, K), the best first, and how many they are (N,)."""
    ordered, moved, places = sorted_candidates(candidates, cfg)
    index, num = first_kept(moved, ordered.valid, threshold_of(cfg), limit_of(cfg), int(cfg['nms'].get('offset', 0)))
    return places.gather(1, index), num
