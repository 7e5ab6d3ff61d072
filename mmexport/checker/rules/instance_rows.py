"""Compare instance rows for `kinds/instance`: an unordered set, limited to the K best."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .counting import share
from .label_maps import MAX_NEAR


def compare_instances(expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], evidence: Mapping[str, Tensor],
                      tolerance: float) -> dict[str, Any]:
    """Match rows by label, mask and score, and return their metrics.

    A mask may differ from its match only in ``mask_near`` pixels, a box only with its mask, and a row may be without a match only if
    ``edge_rows`` says that it was about to fall out of the top K.
    """
    rows = unsure = 0
    best = max(float(expected['scores'].abs().max()), 1e-12)
    tally = _Tally(float(evidence['score_slack']) if 'score_slack' in evidence else tolerance * best)
    for image in range(expected['num'].shape[0]):
        count, actual_count = int(expected['num'][image]), int(actual['num'][image])
        near = evidence['mask_near'][image].bool() if 'mask_near' in evidence else torch.zeros_like(expected['masks'][image])
        edge = evidence['edge_rows'][image].bool() if 'edge_rows' in evidence else torch.zeros(count, dtype=torch.bool)
        rows += count
        unsure += int(edge[:count].sum())
        matches = _matches(expected, actual, image, count, actual_count)
        for row, match, iou in matches:
            if match is None:
                tally.lost += int(not edge[row])
                continue
            tally.ious.append(iou)
            differs = expected['masks'][image, row] != actual['masks'][image, match]
            tally.judge(clearly=bool((differs & ~near[row]).any()),
                        score=float((expected['scores'][image, row] - actual['scores'][image, match]).abs()),
                        box=float((_box(actual['masks'][image, match]) - actual['boxes'][image, match]).abs().max()))
        surplus = actual_count - sum(match is not None for _, match, _ in matches)
        tally.lost += max(0, surplus - int(edge[:count].sum()))
    metrics = dict(rows=rows, rows_lost=tally.lost, rows_wrong=tally.wrong, masks_clearly_different=tally.masks,
                   score_error=tally.score, best_score=float(expected['scores'].abs().max()),
                   box_error=tally.box, mask_iou=sum(tally.ious) / len(tally.ious) if tally.ious else 0.0)
    near_share = share(evidence['mask_near']) if 'mask_near' in evidence else 0.0
    if max(unsure / max(rows, 1), near_share) > MAX_NEAR:
        return dict(problem=f'eager is unsure of {unsure} of {rows} rows and {near_share:.0%} of the mask pixels: too few are left to '
                            'compare', metrics=metrics)
    if not tally.ious:
        return dict(problem=f'none of {rows} instances was found again: nothing was compared', metrics=metrics)
    if _left_over(actual):
        return dict(problem='rows from num on are not zero', metrics=metrics)
    return dict(max_abs=tally.score, max_rel=tally.score / tally.slack * tolerance,
                beyond=min(1.0, (tally.lost + tally.wrong) / rows), lost=min(1.0, tally.lost / rows), metrics=metrics)


@dataclass
class _Tally:
    """Count the errors of matched rows."""

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


def _matches(expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], image: int, count: int,
             actual_count: int) -> list[tuple[int, int | None, float]]:
    """Return for each expected row its match and their IoU. Each row is used once."""
    free = torch.ones(actual_count, dtype=torch.bool)
    matches: list[tuple[int, int | None, float]] = []
    for row in range(count):
        # Nearly always the rows stand in the same order, and comparing masks costs far less than all their overlaps.
        if row < actual_count and bool(free[row]) and _same(expected, actual, image, row):
            matches.append((row, row, 1.0))
            free[row] = False
            continue
        best, iou = _best(row, free, expected, actual, image, actual_count)
        matches.append((row, best, iou))
        if best is not None:
            free[best] = False
    return matches


def _box(mask: Tensor) -> Tensor:
    """Return the box (x1, y1, x2 + 1, y2 + 1) of a mask (H, W); zeros for an empty one.

    A mask may differ in near pixels, a box only with its mask.
    """
    y, x = mask.nonzero(as_tuple=True)
    if not len(y):
        return torch.zeros(4)
    return torch.stack([x.min(), y.min(), x.max() + 1, y.max() + 1]).float()


def _left_over(actual: Mapping[str, Tensor]) -> bool:
    return any(bool(actual[name][image, int(count):].any()) for image, count in enumerate(actual['num'])
               for name in ('boxes', 'scores', 'labels', 'masks'))


def _same(expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], image: int, row: int) -> bool:
    return bool(expected['labels'][image, row] == actual['labels'][image, row]) and torch.equal(
        expected['masks'][image, row], actual['masks'][image, row])


def _best(row: int, free: Tensor, expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], image: int,
          actual_count: int) -> tuple[int | None, float]:
    """Return the free row of the same label with the largest IoU, scores breaking ties; None up to an IoU of one half."""
    same = (free & (actual['labels'][image, :actual_count] == expected['labels'][image, row])).nonzero()[:, 0]
    if not len(same):
        return None, 0.0
    mask, others = expected['masks'][image, row], actual['masks'][image, same]
    union = (mask | others).flatten(1).sum(1).double()
    iou = torch.where(union > 0, (mask & others).flatten(1).sum(1).double() / union.clamp_min(1), torch.ones_like(union))
    gap = (actual['scores'][image, same] - expected['scores'][image, row]).abs().double()
    best = int((iou - gap).argmax())
    return (int(same[best]), float(iou[best])) if float(iou[best]) > 0.5 else (None, 0.0)
