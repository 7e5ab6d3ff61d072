"""Compare detection rows for `kinds/detections`: an unordered set of boxes, limited to the K best."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .counting import share_of_rows
from .label_maps import MAX_NEAR

# The least overlap at which a row is taken for another one that is a little off.
SAME = 0.5
# So many rows of a picture are not in the order of their scores by chance. Mask Scoring R-CNN changes scores after it has ordered the rows.
ORDERED = 8


def compare_detections(expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], evidence: Mapping[str, Tensor],
                       tolerance: float, inside: float = 0.0) -> dict[str, Any]:
    """Match rows by label, box and score, and return their metrics.

    A row without a match counts as lost unless ``unsure`` says that eager might have dropped it, and a new one unless it is among those
    that eager might have kept, ``maybe``. Boxes may be off by the tolerance times their `_reach`, scores by the tolerance times the
    best score, or by ``row_slack`` if that is more: what the tolerance of a logit does to its probability. With ``in_order`` rows must
    keep the order of their scores where `expected` does. What a mask has over `inside` belongs to the object.
    """
    largest = _inside(expected['boxes'])
    reach = _reach(expected['boxes'], largest)
    best = max(float(expected['scores'].abs().max()), 1e-12)
    rows = lost = new = wrong = doubtful = matched = disorder = 0
    box_error = score_error = mask_error = worst = 0.0
    mask_scale = float(expected['masks'].abs().max()) if 'masks' in expected else 0.0
    overlaps: list[float] = []
    for image, count in enumerate(map(int, expected['num'])):
        actual_count = int(actual['num'][image])
        if not 0 <= actual_count <= actual['scores'].shape[1]:
            return dict(problem=f'num is {actual_count}, and there are {actual["scores"].shape[1]} rows')
        unsure = evidence['unsure'][image].bool() if 'unsure' in evidence else torch.zeros(expected['scores'].shape[1], dtype=torch.bool)
        rows, before = rows + count, lost
        doubtful += int(unsure[:count].sum())
        pairs, free = _matches(expected, actual, image, count, actual_count, reach[image, :count], best, tolerance)
        for row, match in pairs:
            if match is None:
                lost += int(not unsure[row])
                continue
            box = float((expected['boxes'][image, row] - actual['boxes'][image, match]).abs().max())
            score = float((expected['scores'][image, row] - actual['scores'][image, match]).abs())
            allowed = max(tolerance * best, float(evidence['row_slack'][image, row]) if 'row_slack' in evidence else 0.0)
            allowed_box = tolerance * float(reach[image, row])
            if unsure[row] and (box > allowed_box or score > allowed):
                # It is not there, and what lies near it is another one.
                free[match] = True
                continue
            matched += 1
            box_error, score_error = max(box_error, box), max(score_error, score)
            worst = max(worst, box / float(reach[image, row]), score * tolerance / allowed)
            off, over = _mask_error(expected, actual, evidence, image, row, match, tolerance * mask_scale)
            mask_error, worst = max(mask_error, off), max(worst, over * tolerance)
            if 'masks' in expected:
                overlaps.append(_overlap(expected['masks'][image, row] > inside, actual['masks'][image, match] > inside))
            wrong += int(box > allowed_box or score > allowed or over > 1)
        new += _unexplained(actual, image, free, evidence, tolerance, largest, best)
        if 'in_order' in evidence:
            slack = max(tolerance * best, float(evidence['row_slack'][image].max()) if 'row_slack' in evidence else 0.0)
            scores = expected['scores'][image, :count], actual['scores'][image, :actual_count]
            disorder = disorder or _out_of_order(*scores, 2 * slack)
        if 'least_num' in evidence:
            # Of rows at a cut one may go, and another comes: there are as many.
            lost = max(lost, before + int(evidence['least_num'][image]) - actual_count)
    metrics = dict(rows=rows, rows_lost=lost, rows_new=new, rows_wrong=wrong, rows_unsure=doubtful, box_error=box_error,
                   score_error=score_error, best_score=best, reach=float(reach.max()), matched=matched / max(rows, 1))
    if 'masks' in expected:
        metrics.update(mask_error=mask_error, mask_scale=mask_scale, mask_iou=sum(overlaps) / len(overlaps) if overlaps else 0.0)
    if doubtful / max(rows, 1) > MAX_NEAR:
        return dict(problem=f'eager is unsure of {doubtful} of {rows} rows: too few are left to compare. '
                            'Give a picture of what the model was trained on by --image, or compare --outputs raw', metrics=metrics)
    for name, what in (('mask_near', 'cells of masks'), ('mask_unsure', 'masks')) if 'masks' in expected else ():
        if name in evidence and (near := share_of_rows(expected['num'], evidence[name])) > MAX_NEAR:
            return dict(problem=f'eager is unsure of {near:.0%} of the {what}: too few are left to compare', metrics=metrics)
    if any(bool(actual[name][image, int(count):].any()) for image, count in enumerate(actual['num'])
           for name in ('boxes', 'scores', 'labels', *(['masks'] if 'masks' in expected else []))):
        return dict(problem='rows from num on are not zero', metrics=metrics)
    if disorder and not lost + new + wrong:
        return dict(problem=f'rows {disorder - 1} and {disorder} are not in the order of their scores, and eager gives the best first',
                    metrics=metrics)
    share = max(rows, 1)
    return dict(max_abs=score_error, max_rel=worst, beyond=min(1.0, (lost + new + wrong) / share),
                lost=min(1.0, (lost + new) / share), metrics=metrics)


def _overlap(one: Tensor, other: Tensor) -> float:
    """Return the intersection over union of two masks (H, W); 1 for two empty ones."""
    return float((one & other).sum() / (one | other).sum()) if bool((one | other).any()) else 1.0


def _out_of_order(expected: Tensor, actual: Tensor, slack: float) -> int:
    """Return the first row whose score is above that of the row before it by more than `slack`; 0 if none, or if eager has one."""
    if len(expected) < ORDERED or bool((expected.diff() > 0).any()):
        return 0
    above = (actual.diff() > slack).nonzero()
    return int(above[0, 0]) + 1 if len(above) else 0


def _inside(boxes: Tensor) -> float:
    """Return the largest coordinate of the centres of boxes (N, K, 4), which lie in the picture; 1 at least."""
    return max(float((boxes[..., :2] + boxes[..., 2:]).abs().max()) / 2, 1.0)


def _reach(boxes: Tensor, inside: float) -> Tensor:
    """Return the coordinate of which a box (..., 4) may be off by the tolerance: its own largest one, or `inside` if that is more.

    Heads that clip no boxes (YOLOX) may give one a hundred times as large as the picture, which must not excuse the others.
    """
    return boxes.abs().amax(dim=-1).clamp(min=inside)


def _mask_error(expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], evidence: Mapping[str, Tensor], image: int, row: int,
                match: int, allowed: float) -> tuple[float, float]:
    """Return by how much the mask of a row is off, and that in units of what is allowed: what its box's tolerance does to it."""
    if 'masks' not in expected or ('mask_unsure' in evidence and bool(evidence['mask_unsure'][image, row])):
        return 0.0, 0.0
    one, other = expected['masks'][image, row], actual['masks'][image, match]
    # Also a cell that is not compared has a value that a mask has.
    outside = 0.0 if one.dtype == torch.uint8 else float(torch.maximum(one.amin() - other, other - one.amax()).amax())
    if 'mask_near' in evidence:
        one, other = (mask.masked_fill(evidence['mask_near'][image, row].bool(), 0) for mask in (one, other))
    if one.dtype == torch.uint8:
        # Pixels; the first one is too much.
        return float((one != other).sum()), 2.0 * float((one != other).any())
    off = max(outside, float((one - other).abs().max()))
    allowed += float(evidence['mask_slack'][image, row]) if 'mask_slack' in evidence else 0.0
    return off, off / max(allowed, 1e-12)


def _matches(expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], image: int, count: int, actual_count: int, reach: Tensor,
             best: float, tolerance: float) -> tuple[list[tuple[int, int | None]], Tensor]:
    """Return for each expected row its match, and which rows of `actual` were not used. The nearest pairs are matched first.

    Two rows may match whose boxes overlap, or agree within the tolerance: slivers that are off by less than a pixel overlap little.
    """
    boxes, others = expected['boxes'][image, :count], actual['boxes'][image, :actual_count]
    free = torch.ones(actual_count, dtype=torch.bool)
    if not count or not actual_count:
        return [(row, None) for row in range(count)], free
    same = expected['labels'][image, :count, None] == actual['labels'][image, :actual_count]
    off = (boxes[:, None] - others).abs().amax(dim=2) / reach[:, None]
    # A row that is not there must not take the place of another whose box is the same.
    apart = off + 10.0 * (off > tolerance) + (expected['scores'][image, :count, None] - actual['scores'][image, :actual_count]).abs() / best
    apart = torch.where(same & ((overlaps(boxes, others) >= SAME) | (off <= tolerance)), apart, torch.full_like(apart, float('inf')))
    matches: dict[int, int] = {}
    for pair in apart.flatten().argsort(stable=True).tolist():
        row, match = divmod(pair, actual_count)
        if not torch.isfinite(apart[row, match]):
            break
        if row not in matches and bool(free[match]):
            matches[row] = match
            free[match] = False
    return [(row, matches.get(row)) for row in range(count)], free


def _unexplained(actual: Mapping[str, Tensor], image: int, free: Tensor, evidence: Mapping[str, Tensor], tolerance: float, inside: float,
                 best: float) -> int:
    """Return how many rows of `actual` that match nothing eager could not have kept either."""
    maybe = evidence['maybe'][image].clone() if 'maybe' in evidence else torch.zeros(0, 6)
    allowed = torch.full_like(maybe[:, 4], tolerance * best)
    if 'maybe_slack' in evidence:
        allowed = torch.maximum(allowed, evidence['maybe_slack'][image])
    around = tolerance * _reach(maybe[:, :4], inside)[:, None].expand(-1, 4)
    if 'maybe_box_slack' in evidence:
        around = around + evidence['maybe_box_slack'][image]
    count = 0
    for row in free.nonzero()[:, 0].tolist():
        fits = ((maybe[:, :4] - actual['boxes'][image, row]).abs() <= around).all(dim=1) & (
            (maybe[:, 4] - actual['scores'][image, row]).abs() <= allowed) & (maybe[:, 5] == actual['labels'][image, row])
        if bool(fits.any()):
            maybe[int(fits.nonzero()[0, 0]), 5] = -1
        else:
            count += 1
    return count


def overlaps(boxes: Tensor, others: Tensor) -> Tensor:
    """Return the intersection over union (A, B) of boxes (A, 4) and (B, 4); 1 for two that are equal."""
    sides = (torch.minimum(boxes[:, None, 2:], others[:, 2:]) - torch.maximum(boxes[:, None, :2], others[:, :2])).clamp(min=0)
    shared = sides.prod(dim=2)
    areas, other_areas = ((part[:, 2:] - part[:, :2]).clamp(min=0).prod(dim=1) for part in (boxes, others))
    iou = shared / (areas[:, None] + other_areas - shared).clamp(min=1e-12)
    return torch.where((boxes[:, None] == others).all(dim=2), torch.ones_like(iou), iou)
