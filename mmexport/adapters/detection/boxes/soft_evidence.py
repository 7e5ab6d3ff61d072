"""Find what rounding may change in the rows of Soft-NMS, for the checker.

A score is lowered by every better box that overlaps its own. Where two that overlap nearly tie, either may lower the other, and what they
become may decide the order of others. So each candidate has an interval that holds its score in every file whose scores and overlaps are
off by rounding only. A row is unsure where this interval is wide, or where it may not be there at all.

Both ends of the intervals are found by a fixed point. A box is at most what is left of it when the best box that is not sure to come
before it comes, and at least what is left when all that may come before it have.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....ops.nms.forms import pairwise
from ....ops.soft_nms import METHODS, SoftNms
from ....ops.soft_nms.forms import lowered
from .candidates import Candidates, with_near_ones
from .filling import filled, stacked
from .overlapping import ROUNDING, slack_of_overlaps
from .suppression import Kept, limit_of, sorted_candidates

# Turns of the fixed point, which settles in fewer; without it, all rows are unsure.
TURNS = 50
# Of a score: rows with a narrower interval are compared within it.
WIDE = 0.05
# Of the last row's score: candidates below can come into no row.
FAR_BELOW = 0.9


class Intervals(NamedTuple):
    """Hold what scores may become, each (M,): at least and at most."""

    low: Tensor
    high: Tensor


def soft_close_calls(candidates: Candidates, cfg: Mapping[str, Any], soft: SoftNms, slacks: Tensor, may_be_removed: Tensor,
                     may_be_added: Tensor, expected: Kept) -> dict[str, Tensor]:
    """Return what `evidence.close_calls` returns. A row that is unsure is among `maybe` too, with its interval as slack."""
    lowest = float(cfg.get('score_thr', 0))
    ordered, moved, places = sorted_candidates(with_near_ones(candidates, slacks, lowest), cfg)
    counts, removed, added, slack = (part.gather(1, places) for part in (candidates.valid, may_be_removed, may_be_added, slacks))
    sure = ordered.valid & counts & ~removed & ~added & ((ordered.scores - lowest).abs() > slack)
    ranks = places.argsort(dim=1)
    found = []
    for image, count in enumerate(map(int, expected.num)):
        order, scores = ranks[image, expected.places[image, :count]].cpu(), expected.scores[image, :count].double().cpu()
        rows = Candidates(*(part[image].cpu() for part in ordered))
        boxes, certain, margin = (part[image].cpu() for part in (moved, sure, slack))
        found.append(_of_picture(rows, boxes, certain, margin, soft, not cfg['nms'].get('class_agnostic', False), order, scores,
                                 limit_of(cfg)))
    flags, row_slack, others, least = zip(*found, strict=True)
    maybe = stacked(others)
    evidence = {'unsure': torch.stack(flags), 'maybe': maybe[..., :6].float(), 'row_slack': torch.stack(row_slack).float(),
                'maybe_slack': maybe[..., 6].clamp(min=0).float(), 'least_num': torch.stack(least)}
    return {name: value.to(candidates.boxes.device) for name, value in evidence.items()}


def _of_picture(rows: Candidates, boxes: Tensor, sure: Tensor, slack: Tensor, soft: SoftNms, by_class: bool, order: Tensor, eager: Tensor,
                limit: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the parts of the evidence of one picture: `unsure` and `row_slack` (K,), `maybe` with its slack (J, 7), `least_num`.

    Args:
        rows, boxes: the candidates, and their boxes as they are compared.
        sure: which candidates every file has (M,).
        order: the candidates that are the rows of eager, and `eager` their scores.
    """
    there = rows.valid
    for floor in (FAR_BELOW * float(eager[-1]), 0.0) if len(order) == limit else (0.0,):
        # A box changes those below it only.
        rows = rows._replace(valid=there & (rows.scores + slack >= floor))
        found = _intervals(rows, boxes, sure & rows.valid, slack, soft, by_class)
        if int((sure & (found.low >= floor)).sum()) >= limit:
            break
    low, high = found.low, found.high
    # A new row needs the place of an expected one, and that one is behind it.
    ahead, surely_ahead = _how_many_over(high, low), _how_many_over(torch.where(sure, low, torch.full_like(low, -1.0)), high)
    unsure = ~sure | (high - low > WIDE * high) | (low < soft.min_score) | (ahead > limit)
    others = torch.ones_like(unsure)
    others[order] = unsure[order]
    maybe = others & rows.valid & (high >= soft.min_score) & (surely_ahead < limit)
    row_slack = torch.maximum(high[order] - eager, eager - low[order])
    listed = torch.stack([(high + low) / 2, rows.labels.double(), (high - low) / 2], dim=1)
    return (filled(unsure[order], limit), filled(row_slack, limit), torch.cat([rows.boxes.double(), listed], dim=1)[maybe],
            (sure & (low >= soft.min_score)).sum().clamp(max=limit))


def _intervals(rows: Candidates, boxes: Tensor, sure: Tensor, slack: Tensor, soft: SoftNms, by_class: bool) -> Intervals:
    """Return the intervals of all candidates; those that do not count have -1."""
    found = Intervals(*(torch.full((len(boxes),), -1.0, dtype=torch.float64) for _ in Intervals._fields))
    # Boxes that begin below zero may overlap others when they are moved apart.
    apart = by_class and bool((rows.boxes[rows.valid] >= 0).all()) and (soft.iou_threshold > 0 or METHODS[soft.method] == 'gaussian')
    groups = rows.labels[rows.valid].unique().tolist() if apart else [None]
    moved = ROUNDING * (float(boxes.abs().max()) + float(rows.boxes.abs().max())) if len(boxes) else 0.0
    for label in groups:
        group = (rows.valid if label is None else rows.valid & (rows.labels == label)).nonzero()[:, 0]
        for whole, part in zip(found, _of_group(rows.scores[group], slack[group], boxes[group], sure[group], soft, moved), strict=True):
            whole[group] = part
    return found


def _of_group(scores: Tensor, slack: Tensor, boxes: Tensor, sure: Tensor, soft: SoftNms, moved: float) -> Intervals:
    """Return the intervals of candidates that may overlap."""
    overlap = pairwise(boxes[None], boxes[None], boxes.new_tensor(float(soft.offset)))[0].double()
    close = slack_of_overlaps(boxes, boxes, moved).double()
    threshold, sigma, method = (torch.tensor(float(value)) for value in (soft.iou_threshold, soft.sigma, soft.method))
    # Boxes that do not overlap and lie apart lower nothing.
    least, most, own = (lowered(each, threshold, sigma, method).fill_diagonal_(1.0) for each in (
        (overlap + close * (overlap > 0)).clamp(max=1), (overlap - close).clamp(min=0), overlap))
    upper, lower = (scores + slack).double(), (scores - slack).double().clamp(min=0)
    before = _order(scores.double(), own)
    # In eager's own order.
    high, low = upper * _product(most, before), lower * _product(least, before)
    most = torch.where(sure[:, None], most, torch.ones_like(most))
    for _ in range(TURNS):
        anchor = torch.where(sure, low, torch.full_like(low, -1.0))
        new_high = torch.maximum(high, _stopped(upper, most, anchor, stop_over=True))
        new_low = torch.minimum(low, _stopped(lower, least, high, stop_over=False))
        if torch.equal(new_high, high) and torch.equal(new_low, low):
            return Intervals(low, high)
        low, high = new_low, new_high
    return Intervals(torch.zeros_like(low), upper)


def _order(scores: Tensor, factors: Tensor) -> Tensor:
    """Return for each pair whether the first is taken before the second (M, M)."""
    left, rank = scores.clone(), torch.empty(len(scores), dtype=torch.int64)
    for step in range(len(scores)):
        best = int(left.argmax())
        rank[best] = step
        left = torch.where(left < 0, left, left * factors[best])
        left[best] = -1.0
    return rank[:, None] < rank


def _product(factors: Tensor, before: Tensor) -> Tensor:
    return torch.where(before, factors, torch.ones_like(factors)).prod(dim=0)


def _stopped(start: Tensor, factors: Tensor, levels: Tensor, stop_over: bool) -> Tensor:
    """Return what is left of `start` (M,) when the boxes of the highest levels have lowered it, up to the first that does not.

    A box does not if what is left is at least its level (`stop_over`), or over it.
    """
    order = levels.argsort(descending=True)
    left = torch.cat([torch.ones_like(factors[:1]), factors[order].cumprod(dim=0)]) * start
    level = levels[order][:, None]
    stops = left[:-1] >= level if stop_over else left[:-1] > level
    stops &= order[:, None] != torch.arange(len(start))
    # Where none stops it, all have.
    first = torch.cat([stops, torch.ones_like(stops[:1])]).to(torch.int64).argmax(dim=0)
    return left.gather(0, first[None])[0]


def _how_many_over(values: Tensor, limits: Tensor) -> Tensor:
    """Return how many of `values` are at least each of `limits`."""
    return len(values) - torch.searchsorted(values.sort().values, limits)
