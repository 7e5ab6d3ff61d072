"""Compare instance rows for `kinds/instance`: an unordered set, limited to the K best."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .counting import share_of_rows
from .label_maps import MAX_NEAR

# A score that may be off by more than this share of the best says nothing of its row.
WIDE = 0.05
MAYBE = ('maybe', 'maybe_masks', 'maybe_near')


def compare_instances(expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], evidence: Mapping[str, Tensor],
                      tolerance: float) -> dict[str, Any]:
    """Match rows by label, mask and score, and return their metrics.

    A mask may differ from its match only in ``mask_near`` pixels, a box only with its mask, and a row may be without a match only if
    ``edge_rows`` says that rounding may remove it. Where the evidence has ``maybe``, rows (N, J, 3) of least and largest score and label,
    a row that is new must be one of them, with its mask ``maybe_masks`` but for ``maybe_near`` (N, J, H, W), and there are ``least_num``
    (N,) rows at least; without it there may be as many new ones as there are edges. Scores may be off by ``row_slack``
    (N, K), by one ``score_slack`` for all, or else by the tolerance times the best.
    """
    rows = unsure = 0
    best = max(float(expected['scores'].abs().max()), 1e-12)
    tally = _Tally(float(evidence['score_slack']) if 'score_slack' in evidence else tolerance * best)
    for image in range(expected['num'].shape[0]):
        count, actual_count = int(expected['num'][image]), int(actual['num'][image])
        if not 0 <= actual_count <= actual['scores'].shape[1]:
            return dict(problem=f'num is {actual_count}, and there are {actual["scores"].shape[1]} rows')
        near = evidence['mask_near'][image].bool() if 'mask_near' in evidence else torch.zeros_like(expected['masks'][image])
        slacks = evidence['row_slack'][image].clamp(min=tally.slack) if 'row_slack' in evidence else torch.full_like(
            expected['scores'][image], tally.slack)
        lost = tally.lost
        edge = evidence['edge_rows'][image].bool() if 'edge_rows' in evidence else torch.zeros(count, dtype=torch.bool)
        rows += count
        wide = evidence['row_slack'][image] > WIDE * best if 'row_slack' in evidence else torch.zeros_like(edge)
        unsure += int((edge[:count] | wide[:count]).sum())
        matches, free = _matches(expected, actual, image, count, actual_count, slacks)
        for row, match, iou in matches:
            if match is None:
                tally.lost += int(not edge[row])
                continue
            clearly = bool(((expected['masks'][image, row] != actual['masks'][image, match]) & ~near[row]).any())
            if clearly and edge[row] and 'maybe' in evidence:
                # It is not there, and what resembles it is another one.
                free[match] = True
                continue
            tally.ious.append(iou)
            tally.judge(clearly=clearly, score=float((expected['scores'][image, row] - actual['scores'][image, match]).abs()),
                        box=float((_box(actual['masks'][image, match]) - actual['boxes'][image, match]).abs().max()),
                        allowed=float(slacks[row]))
        if 'least_num' in evidence:
            # Of rows at a cut one may go, and another comes: there are as many.
            tally.lost = max(tally.lost, lost + int(evidence['least_num'][image]) - actual_count)
        tally.lost += _unexplained(actual, image, free, {name: evidence[name][image] for name in MAYBE}, tally.slack) if 'maybe' in \
            evidence else max(0, int(free.sum()) - int(edge[:count].sum()))
    metrics = dict(rows=rows, rows_lost=tally.lost, rows_wrong=tally.wrong, masks_clearly_different=tally.masks,
                   score_error=tally.score, best_score=float(expected['scores'].abs().max()),
                   box_error=tally.box, mask_iou=sum(tally.ious) / len(tally.ious) if tally.ious else 0.0)
    near_share = share_of_rows(expected['num'], evidence['mask_near']) if 'mask_near' in evidence else 0.0
    if max(unsure / max(rows, 1), near_share) > MAX_NEAR:
        return dict(problem=f'eager is unsure of {unsure} of {rows} rows and {near_share:.0%} of the mask pixels: too few are left to '
                            'compare', metrics=metrics)
    if not tally.ious and rows:
        return dict(problem=f'none of {rows} instances was found again: nothing was compared', metrics=metrics)
    if _left_over(actual):
        return dict(problem='rows from num on are not zero', metrics=metrics)
    return dict(max_abs=tally.score, max_rel=tally.of_allowed * tolerance,
                beyond=min(1.0, (tally.lost + tally.wrong) / max(rows, 1)), lost=min(1.0, tally.lost / max(rows, 1)), metrics=metrics)


@dataclass
class _Tally:
    """Count the errors of matched rows."""

    slack: float
    lost: int = 0
    wrong: int = 0
    masks: int = 0
    score: float = 0.0
    of_allowed: float = 0.0
    box: float = 0.0
    ious: list[float] = field(default_factory=list)

    def judge(self, clearly: bool, score: float, box: float, allowed: float) -> None:
        self.masks += int(clearly)
        self.score, self.box, self.of_allowed = max(self.score, score), max(self.box, box), max(self.of_allowed, score / allowed)
        self.wrong += int(clearly or score > allowed or box > 0)


def _matches(expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], image: int, count: int,
             actual_count: int, slacks: Tensor) -> tuple[list[tuple[int, int | None, float]], Tensor]:
    """Return for each expected row its match and their IoU, and which rows of `actual` were not used.

    Rows match that have a label in common and an IoU above one half; the pairs that agree best come first, by IoU and then by score.
    Their order is not compared.

    Args:
        slacks: (K,) what the score of each expected row may be off by.
    """
    free = torch.ones(actual_count, dtype=torch.bool)
    matches: dict[int, tuple[int, float]] = {}
    # Nearly always the rows stand in the same order, and comparing masks costs far less than all their overlaps.
    for row in range(min(count, actual_count)):
        if _same(expected, actual, image, row, float(slacks[row])):
            matches[row] = row, 1.0
            free[row] = False
    left = [row for row in range(count) if row not in matches]
    candidates = free.nonzero()[:, 0]
    ious = torch.stack([_ious(expected, actual, image, row, candidates) for row in left]) if left and len(candidates) else torch.zeros(0, 0)
    gaps = (expected['scores'][image, left, None] - actual['scores'][image, candidates]).abs().double() if ious.numel() else ious
    for pair in (gaps - ious).flatten().argsort(stable=True).tolist():
        row, match = left[pair // len(candidates)], int(candidates[pair % len(candidates)])
        iou = float(ious.flatten()[pair])
        if row not in matches and bool(free[match]) and iou > 0.5:
            matches[row] = match, iou
            free[match] = False
    return [(row, *matches.get(row, (None, 0.0))) for row in range(count)], free


def _unexplained(actual: Mapping[str, Tensor], image: int, free: Tensor, of_maybe: Mapping[str, Tensor], slack: float) -> int:
    """Return how many rows of `actual` that match nothing eager could not have kept either."""
    (low, high, labels), count = of_maybe['maybe'].clone().unbind(1), 0
    rows = free.nonzero()[:, 0]
    # Each takes the narrowest interval that fits, so that it leaves the others to those that need them.
    for row in rows[actual['scores'][image, rows].argsort()].tolist():
        score = actual['scores'][image, row]
        differs = ((of_maybe['maybe_masks'] != actual['masks'][image, row]) & ~of_maybe['maybe_near'].bool()).flatten(1).any(dim=1)
        fits = (low - slack <= score) & (score <= high + slack) & (labels == actual['labels'][image, row]) & ~differs
        if bool(fits.any()):
            labels[int(torch.where(fits, high, torch.full_like(high, float('inf'))).argmin())] = -1
        else:
            count += 1
    return count


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


def _same(expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], image: int, row: int, slack: float) -> bool:
    # Without the score, of several rows with one mask the wrong ones would be paired.
    return (bool(expected['labels'][image, row] == actual['labels'][image, row])
            and float((expected['scores'][image, row] - actual['scores'][image, row]).abs()) <= slack
            and torch.equal(expected['masks'][image, row], actual['masks'][image, row]))


def _ious(expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], image: int, row: int, candidates: Tensor) -> Tensor:
    """Return the IoU of an expected row with each of `candidates`; 0 where the label is another one, 1 for two empty masks."""
    mask, others = expected['masks'][image, row], actual['masks'][image, candidates]
    union = (mask | others).flatten(1).sum(1).double()
    iou = torch.where(union > 0, (mask & others).flatten(1).sum(1).double() / union.clamp_min(1), torch.ones_like(union))
    return torch.where(actual['labels'][image, candidates] == expected['labels'][image, row], iou, torch.zeros_like(iou))
