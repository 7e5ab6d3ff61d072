"""Find the rows of which eager itself is not sure, for the checker.

Every quantity that decides lies in an interval, from the tolerance of the logits: probabilities, the pixels of a mask, its area, its
overlap with others, and so the scores. A row is unsure if its interval reaches a limit.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ..detection.boxes.evidence import score_slack
from ..detection.boxes.filling import stacked
from ..detection.pasting import within
from ..specs import LOGIT_TOLERANCE, STEEPEST
from .masks import MASKS, at, largest_logit

if TYPE_CHECKING:
    from .solo import SOLO, Rows

# Relative rounding of sums and exponentials in float32.
ROUNDING = 1e-5


class Interval(NamedTuple):
    """Hold the least and the largest value that rounding may give."""

    low: Tensor
    high: Tensor


class Masks(NamedTuple):
    """Hold the pixels that surely belong to each mask, and those that may: (M, P), 0 or 1."""

    surely: Tensor
    maybe: Tensor


def evidence_of(adapter: SOLO, raw: tuple[Tensor, ...], image: Tensor, sizes: Tensor | None = None) -> dict[str, Tensor]:
    """Return `mask_near` (N, K, H, W), `edge_rows` and `row_slack` (N, K), and `least_num` (N,): how many rows there are at least.

    Of rows that a file may have besides, `maybe` (N, J, 3) has least and largest score and label; a label of -1 fills up. `maybe_masks` and
    `maybe_near` (N, J, H, W) are their masks.

    Args:
        sizes: height and width (N, 2) of pictures with padding, in which there are no masks.
    """
    groups, locations, cfg = adapter.groups(raw), adapter.locations(raw), adapter.head.test_cfg
    logits = groups[adapter.map_names.index('scores')]
    slack = STEEPEST * LOGIT_TOLERANCE * MASKS[adapter.kind][1] * largest_logit(adapter.kind, groups)
    scores = _scores(logits, max(float(level.abs().max()) for level in logits))
    rows, least = adapter.rows(locations), adapter.least_areas(locations.masks)
    edges, slacks, others, counts = zip(*(
        _doubts(cfg, locations.masks[number].flatten(1), least.double(), [part[number].double() for part in scores[:2]],
                [part[number] for part in scores[2:]], slack, rows, number) for number in range(len(rows.num))), strict=True)
    maybe = stacked(others)
    there = (torch.arange(rows.places.shape[1], device=image.device) < rows.num[:, None])[..., None, None]
    whole, of_maybe = (adapter.in_picture(at(locations.masks, places), image.shape[2:], sizes)
                       for places in (rows.places, maybe[..., 3].clamp(min=0).long()))
    near, maybe_near = ((each - float(cfg.mask_thr)).abs() <= slack for each in (whole, of_maybe))
    maybe_masks = of_maybe > float(cfg.mask_thr)
    if sizes is not None:
        near, maybe_near, maybe_masks = (within(each, sizes) for each in (near, maybe_near, maybe_masks))
    return {'mask_near': near & there, 'edge_rows': torch.stack(edges), 'row_slack': torch.stack(slacks), 'maybe': maybe[..., :3],
            'maybe_masks': maybe_masks, 'maybe_near': maybe_near, 'least_num': torch.stack(counts)}


def _scores(logits: list[Tensor], scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return least and largest scores (N, L, C) of all levels, and where a score surely is a peak, and may be one."""
    low, high, surely, maybe = [], [], [], []
    for level in logits:
        values = level.sigmoid()
        slack = score_slack(values, scale)
        # Above, left, and above left; outside there is nothing.
        around = F.pad(values, (1, 0, 1, 0), value=-1.0)
        highest = torch.stack([around[..., :-1, 1:], around[..., 1:, :-1], around[..., :-1, :-1]]).amax(dim=0)
        low.append(values - slack)
        high.append(values + slack)
        surely.append(values - highest > 2 * slack)
        maybe.append(values - highest >= -2 * slack)
    return tuple(torch.cat([level.flatten(2) for level in part], dim=2).transpose(1, 2)  # type: ignore[return-value]
                 for part in (low, high, surely, maybe))


def _doubts(cfg: Any, masks: Tensor, least: Tensor, scores: list[Tensor], peaks: list[Tensor], slack: float, rows: Rows,
            number: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return of a picture `edge_rows` (K,), `row_slack` (K,), what it has of `maybe` with the location of each, and `least_num`.

    Args:
        masks: (L, P), probabilities.
        scores: least and largest (L, C).
        peaks: where there surely is one, and where there may be (L, C).
    """
    threshold, before, after = float(cfg.mask_thr), int(cfg.nms_pre), int(cfg.max_per_img)
    # Masks of locations that no class can have are left out: of thousands they fill the memory.
    looked_at = (peaks[1] & (scores[1] > float(cfg.score_thr))).any(dim=1).nonzero()[:, 0]
    masks, least, scores, peaks = masks[looked_at].double(), least[looked_at], [part[looked_at] for part in scores], [
        part[looked_at] for part in peaks]
    inside = Masks((masks > threshold + slack).double(), (masks > threshold - slack).double())
    areas = Interval(inside.surely.sum(dim=1), inside.maybe.sum(dim=1))
    certainty = _certainty(masks, inside, areas, threshold, slack)
    surely = peaks[0] & (scores[0] > float(cfg.score_thr)) & (areas.low > least)[:, None]
    place, label = (peaks[1] & (scores[1] > float(cfg.score_thr)) & (areas.high > least)[:, None]).nonzero(as_tuple=True)
    score = Interval(scores[0][place, label] * certainty.low[place], scores[1][place, label] * certainty.high[place])
    sure, there = _in_best(score, surely[place, label], before)
    place, label, sure = place[there], label[there], sure[there]
    score = Interval(score.low[there], score.high[there])
    overlap = _overlaps(Masks(inside.surely[place], inside.maybe[place]), Interval(areas.low[place], areas.high[place]))
    final = _decayed(score, sure, label, overlap, float(cfg.sigma))
    stays = final.high >= float(cfg.filter_thr)
    sure = sure & (final.low >= float(cfg.filter_thr))
    least_num = sure.sum().clamp(max=len(rows.scores[number]))
    sure, there = _in_best(final, sure, after)
    sure, there = sure & stays, there & stays
    edge, slacks = torch.zeros_like(rows.scores[number], dtype=torch.bool), torch.zeros_like(rows.scores[number])
    others = there.clone()
    for row in range(int(rows.num[number])):
        match = ((looked_at[place] == rows.places[number, row]) & (label == rows.labels[number, row])).nonzero()[0, 0]
        value = rows.scores[number, row].double()
        edge[row] = ~sure[match]
        slacks[row] = torch.maximum(final.high[match] - value, value - final.low[match])
        others[match] = False
    columns = final.low[others], final.high[others], label[others].double(), looked_at[place[others]].double()
    return edge, slacks, torch.stack(columns, dim=1).float(), least_num


def _certainty(masks: Tensor, inside: Masks, areas: Interval, threshold: float, slack: float) -> Interval:
    """Return the mean probability (L,) within each mask. Pixels that may belong to it have one near the threshold."""
    total, more = (masks * inside.surely).sum(dim=1), areas.high - areas.low
    low = (total + threshold * more) / areas.high.clamp(min=1) - slack
    high = torch.where(areas.low > 0, total / areas.low.clamp(min=1), torch.full_like(total, threshold + slack)) + slack
    return Interval(low * (1 - ROUNDING), high * (1 + ROUNDING))


def _in_best(score: Interval, surely: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return which of scores (M,) surely are among the best `count`, and which may be.

    Args:
        surely: which of them there surely are; the others there may be.
    """
    better_at_most = len(score.high) - torch.searchsorted(score.high.sort().values, score.low) - 1
    present = score.low[surely].sort().values
    better_at_least = len(present) - torch.searchsorted(present, score.high, right=True)
    return surely & (better_at_most < count), better_at_least < count


def _overlaps(masks: Masks, areas: Interval) -> Interval:
    """Return the intersections over unions (M, M)."""
    least, most = masks.surely @ masks.surely.T, masks.maybe @ masks.maybe.T
    low = least / (areas.high[:, None] + areas.high - least).clamp(min=1)
    union = torch.maximum(areas.low[:, None] + areas.low - most, torch.maximum(areas.low[:, None], areas.low).expand_as(most))
    return Interval(low, (most / torch.maximum(union, most).clamp(min=1)).clamp(max=1))


def _decayed(score: Interval, sure: Tensor, label: Tensor, overlap: Interval, sigma: float) -> Interval:
    """Return the scores (M,) after matrix NMS, see `matrix_nms.decayed`."""
    same = (label[:, None] == label) & ~torch.eye(len(label), dtype=torch.bool, device=label.device)
    surely_better = same & sure[:, None] & sure & (score.low[:, None] > score.high)
    maybe_better = same & (score.high[:, None] >= score.low)
    low, high = overlap.low * surely_better, overlap.high * maybe_better
    if not len(label):
        return score
    own = Interval(low.amax(dim=0)[:, None], high.amax(dim=0)[:, None])
    factors = ((sigma * (part * part - other * other)).exp().amin(dim=0).clamp(max=1)
               for part, other in ((own.low, high), (own.high, low)))
    least, most = factors
    return Interval(score.low * least * (1 - ROUNDING), score.high * most * (1 + ROUNDING))
