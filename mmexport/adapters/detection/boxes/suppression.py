"""Remove overlapping candidates, or lower their scores: mmcv's ``batched_nms`` for a batch.

Every picture gets as many rows; those that nothing fills are zero.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....errors import UnsupportedModelError
from ....ops.nms import first_kept, moved_apart
from ....ops.ranking import ranked, rows_at
from ....ops.soft_nms import METHODS, SoftNms, softly_kept
from .candidates import Candidates

# Rows of a head without a limit, as YOLOX.
ROWS = 300
GREEDY, SOFT = 'nms', 'soft_nms'
# From as many boxes on mmcv compares those of a class only, even where classes shall suppress each other; its default is 10000.
SPLIT, BOXES = 'split_thr', 10000
LEAST_SIZE = 'min_bbox_size'


class Kept(NamedTuple):
    """Hold which candidates stay."""

    places: Tensor
    """(N, K), the best first."""
    num: Tensor
    """(N,), how many they are."""
    scores: Tensor
    """(N, K), as suppression leaves them."""


def check_suppression(cfg: Mapping[str, Any], *kinds: str) -> None:
    """Raise if ``test_cfg`` asks for a suppression that is none of `kinds`."""
    # mmcv's own default where the config names none.
    kind = cfg['nms'].get('type', GREEDY) if cfg.get('nms') else 'none'
    if kind not in kinds:
        raise UnsupportedModelError(f'test_cfg.nms has the type {kind!r}, and mmexport knows {" and ".join(kinds)} of this head: use '
                                    '--outputs raw')
    if kind == SOFT:
        soft_settings(cfg)


def check_rows(cfg: Mapping[str, Any], section: str) -> None:
    """Raise if ``test_cfg`` keeps every box that stays: a file has as many rows for every picture."""
    if not _limits(cfg):
        raise UnsupportedModelError(f'test_cfg.{section}.max_per_img is {cfg.get("max_per_img")}, and a file gives as many rows of every '
                                    'picture: set it, or use --outputs raw')


def soft_settings(cfg: Mapping[str, Any]) -> SoftNms | None:
    """Return how Soft-NMS lowers scores; None if the config asks for another suppression."""
    if cfg['nms'].get('type', GREEDY) != SOFT:
        return None
    given = {key: value for key, value in cfg['nms'].items() if key not in ('type', 'class_agnostic', SPLIT)}
    if 'iou_thr' in given:
        given['iou_threshold'] = given.pop('iou_thr')
    if unknown := given.keys() - {*SoftNms._fields}:
        raise UnsupportedModelError(f'test_cfg.nms has {", ".join(sorted(unknown))}, which mmexport does not know of soft_nms')
    method = str(given.get('method', METHODS[SoftNms().method]))
    if method not in METHODS:
        raise UnsupportedModelError(f'test_cfg.nms has the method {method!r}; mmcv knows {", ".join(METHODS)}')
    return SoftNms(**{**given, 'method': METHODS.index(method)})


def limit_of(cfg: Mapping[str, Any]) -> int:
    """Return the number of rows of a picture."""
    return min(_limits(cfg), default=ROWS)


def _limits(cfg: Mapping[str, Any]) -> list[int]:
    return [int(limit) for limit in (cfg.get('max_per_img', -1), cfg['nms'].get('max_num', -1)) if int(limit) > 0]


def threshold_of(cfg: Mapping[str, Any]) -> float:
    return float(cfg['nms'].get('iou_threshold', cfg['nms'].get('iou_thr')))


def sorted_candidates(candidates: Candidates, cfg: Mapping[str, Any]) -> tuple[Candidates, Tensor, Tensor]:
    """Return the candidates by descending score, those that do not count last.

    Then the boxes (N, M, 4) that are compared, and where each candidate was before (N, M).
    """
    boxes, scores, labels, valid = candidates
    if int(cfg.get(LEAST_SIZE, -1)) >= 0:
        sides = boxes[..., 2:] - boxes[..., :2]
        valid = valid & (sides > cfg[LEAST_SIZE]).all(dim=2)
    threshold = float(cfg['nms'].get('score_threshold', 0))
    compared = valid & (scores > threshold) if threshold > 0 else valid
    moved = moved_apart(boxes, labels, valid)
    if cfg['nms'].get('class_agnostic', False):
        many = valid.sum(dim=1) >= int(cfg['nms'].get(SPLIT, BOXES))
        moved = torch.where(many[:, None, None], moved, boxes)
    order = ranked(torch.where(compared, scores, torch.full_like(scores, -1.0)))
    ordered = Candidates(rows_at(boxes, order), scores.gather(1, order), labels.gather(1, order), compared.gather(1, order))
    return ordered, rows_at(moved, order), order


def kept(candidates: Candidates, cfg: Mapping[str, Any]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return `boxes` (N, K, 4), `scores` (N, K), `labels` (N, K) of the best boxes that stay, and `num` (N,); other rows are zero."""
    return rows_kept(candidates, places_kept(candidates, cfg))


def rows_kept(candidates: Candidates, chosen: Kept) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what `kept` does, given what `places_kept` does."""
    index, num, scores = chosen
    counts = torch.arange(index.shape[1], device=index.device) < num[:, None]
    return rows_at(candidates.boxes, index) * counts[..., None], scores * counts, candidates.labels.gather(1, index) * counts, num


def places_kept(candidates: Candidates, cfg: Mapping[str, Any]) -> Kept:
    """Return which candidates stay."""
    ordered, moved, places = sorted_candidates(candidates, cfg)
    if soft := soft_settings(cfg):
        index, scores, num = softly_kept(moved, ordered.scores, ordered.valid, soft, limit_of(cfg))
        return Kept(places.gather(1, index), num, scores)
    index, num = first_kept(moved, ordered.valid, threshold_of(cfg), limit_of(cfg), int(cfg['nms'].get('offset', 0)))
    index = places.gather(1, index)
    return Kept(index, num, candidates.scores.gather(1, index))
