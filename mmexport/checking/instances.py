"""Instance rows: a set in no promised order, cut off at the K best."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


def compare_instances(expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], evidence: Mapping[str, Tensor],
                      tolerance: float) -> dict[str, Any]:
    """Match rows by label, mask and score. A mask may differ from its match only in ``mask_near`` pixels, a box only with its mask,
    and a row may be without a match only if ``edge_rows`` says that it was about to fall out of the top K.
    """
    rows = 0
    tally = _Tally(tolerance * max(float(expected['scores'].abs().max()), 1e-12))
    for image in range(expected['num'].shape[0]):
        count, found = int(expected['num'][image]), int(actual['num'][image])
        near = evidence['mask_near'][image].bool() if 'mask_near' in evidence else torch.zeros_like(expected['masks'][image])
        edge = evidence['edge_rows'][image].bool() if 'edge_rows' in evidence else torch.zeros(count, dtype=torch.bool)
        rows += count
        iou = _overlap(expected['masks'][image, :count], actual['masks'][image, :found])
        free = torch.ones(found, dtype=torch.bool)
        for row in range(count):
            match = _best(row, iou, free, expected, actual, image, found)
            if match is None:
                tally.lost += int(not edge[row])
                continue
            free[match] = False
            tally.ious.append(float(iou[row, match]))
            differs = expected['masks'][image, row] != actual['masks'][image, match]
            tally.judge(clearly=bool((differs & ~near[row]).any()),
                        score=float((expected['scores'][image, row] - actual['scores'][image, match]).abs()),
                        box=0.0 if bool(differs.any()) else float(
                            (expected['boxes'][image, row] - actual['boxes'][image, match]).abs().max()))
        tally.lost += max(0, int(free.sum()) - int(edge[:count].sum()))
    metrics = dict(rows=rows, rows_lost=tally.lost, rows_wrong=tally.wrong, masks_clearly_different=tally.masks,
                   score_error=tally.score, box_error=tally.box, mask_iou=sum(tally.ious) / len(tally.ious) if tally.ious else 0.0)
    if rows == 0:
        return dict(problem='no instance survived: nothing was compared', metrics=metrics)
    return dict(max_abs=tally.score, max_rel=tally.score / tally.slack * tolerance,
                beyond=min(1.0, (tally.lost + tally.wrong) / rows), metrics=metrics)


@dataclass
class _Tally:
    """What went wrong in matched rows, row by row."""

    slack: float
    lost: int = 0
    wrong: int = 0
    masks: int = 0
    score: float = 0.0
    box: float = 0.0
    ious: list[float] = field(default_factory=list)

    def judge(self, clearly: bool, score: float, box: float) -> None:
        self.masks += int(clearly)
        self.score, self.box = max(self.score, score), max(self.box, box)
        self.wrong += int(clearly or score > self.slack or box > 0)


def _overlap(one: Tensor, other: Tensor) -> Tensor:
    """(K, H, W), (M, H, W) bool -> IoU (K, M); two empty masks are the same mask."""
    flat, flat_other = one.flatten(1).float(), other.flatten(1).float()
    both = flat @ flat_other.T
    union = flat.sum(1)[:, None] + flat_other.sum(1)[None] - both
    return torch.where(union > 0, both / union.clamp_min(1), torch.ones_like(both))


def _best(row: int, iou: Tensor, free: Tensor, expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], image: int,
          found: int) -> int | None:
    same = free & (actual['labels'][image, :found] == expected['labels'][image, row])
    if not bool(same.any()):
        return None
    gap = (actual['scores'][image, :found] - expected['scores'][image, row]).abs()
    quality = torch.where(same, iou[row] - gap, torch.full_like(gap, -2.0))
    best = int(quality.argmax())
    return best if float(iou[row, best]) > 0.5 else None
