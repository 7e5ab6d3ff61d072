"""Find the boxes of which eager itself is not sure, for the checker.

A box is unsure if rounding may change a decision about it: its score is at the threshold or ties with one at a cut, its overlap with a
better box is at the threshold of suppression, or it overlaps a box that is unsure: a change of an unsure box may change every box that
overlaps it.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ....checker.rules.continuous import competing_scale
from ....ops.nms.forms import first_kept
from ...specs import LOGIT_TOLERANCE
from .candidates import Candidates, with_near_ones
from .filling import stacked
from .overlapping import ROUNDING, overlapping
from .soft_evidence import soft_close_calls
from .suppression import Kept, limit_of, places_kept, soft_settings, sorted_candidates, threshold_of

# Candidates beyond the rows that are looked at.
BEYOND = 16
# Relative; one sigmoid in float32 is exact to 1.5e-7, and so is the other.
SCORE_ROUNDING = 3e-7


def close_calls(candidates: Candidates, cfg: Mapping[str, Any], scale: float | Tensor, may_be_removed: Tensor | None = None,
                may_be_added: Tensor | None = None, expected: tuple[Tensor, ...] | None = None) -> dict[str, Tensor]:
    """Return which rows rounding may remove, and which it may add.

    They are `unsure` (N, K), of the expected rows, and `maybe` (N, J, 6), of others: x1 y1 x2 y2, score, label. A label of -1 fills up.
    `row_slack` (N, K) and `maybe_slack` (N, J) are what a score may be off by; there are `least_num` (N,) rows at least.

    Args:
        scale: of the logits, the largest of them; (M,) where candidates have their own.
        may_be_removed, may_be_added: (N, M) candidates that a file may not have, and those that eager does not have and a file may.
        expected: the rows of eager, as `places_kept` gives them; other candidates behind its own change no place.
    """
    limit = limit_of(cfg)
    none = torch.zeros_like(candidates.valid)
    may_be_removed, may_be_added = none if may_be_removed is None else may_be_removed, none if may_be_added is None else may_be_added
    index, num, *_ = chosen = expected or places_kept(candidates, cfg)
    slacks = score_slack(candidates.scores, scale)
    if soft := soft_settings(cfg):
        return soft_close_calls(candidates, cfg, soft, slacks, may_be_removed, may_be_added, Kept(*chosen))
    ordered, moved, places = sorted_candidates(with_near_ones(candidates, slacks, float(cfg.get('score_thr', 0))), cfg)
    counts, may_be_removed, may_be_added, ordered_slacks = (
        part.gather(1, places) for part in (candidates.valid, may_be_removed, may_be_added, slacks))
    ranks = places.argsort(dim=1)
    unsure, maybe, least_num = [], [], []
    for image in range(len(num)):
        rows = Candidates(*(part[image] for part in ordered))
        order = ranks[image, index[image, :int(num[image])]]
        count = max([_needed(moved[image], rows.valid, cfg, limit), *(order + 1).tolist()])
        rows, boxes, slack = Candidates(*(part[:count] for part in rows)), moved[image, :count], ordered_slacks[image, :count]
        stays, doubtful, instead_of = _judged(boxes, rows, cfg, slack, counts[image, :count], may_be_removed[image, :count],
                                              may_be_added[image, :count])
        staying = stays.nonzero()[:, 0]
        least_num.append((stays & ~doubtful).sum().clamp(max=limit))
        if len(staying) > limit:
            # One more or one less before the cut moves another over it, and so does a tie; both together move one that ties with that.
            before, after = staying[:limit], staying[limit:]
            may_come, sure = (doubtful & ~stays).nonzero()[:, 0], (stays & ~doubtful).nonzero()[:, 0]
            lowest_ranks = (_may_be_better(before, staying, rows.scores, slack).sum(dim=1) - 1
                            + _more_before(before, may_come, instead_of, rows.scores, slack))
            highest_ranks = (~_may_be_better(sure, after, rows.scores, slack)).sum(dim=0)
            doubtful[before[lowest_ranks >= limit]] = True
            doubtful[after[highest_ranks < limit]] = True
        flags = torch.zeros(limit, dtype=torch.bool, device=boxes.device)
        flags[:len(order)] = doubtful[order]
        unsure.append(flags)
        others = doubtful.clone()
        others[order] = False
        maybe.append(torch.cat([rows.boxes[others], torch.stack([rows.scores, rows.labels.to(boxes), slack], dim=1)[others]], dim=1))
    filled = stacked(maybe)
    return {'unsure': torch.stack(unsure), 'maybe': filled[..., :6], 'row_slack': slacks.gather(1, index),
            'maybe_slack': filled[..., 6].clamp(min=0), 'least_num': torch.stack(least_num)}


def scale_of(maps: Sequence[Tensor], candidates: Candidates, count: int) -> float | Tensor:
    """Return the scale of the logits: of its level for each candidate (M,) where each gives `count`, else of all.

    Raw maps are compared level by level too; the logits of one level may be many times those of another. A class that a head masks with
    -1e9 sets none.
    """
    scales = [competing_scale(level, 1) for level in maps]
    by_level = candidates.scores.shape[1] == len(maps) * count
    return maps[0].new_tensor(scales).repeat_interleave(count) if by_level else max(scales)


def score_slack(scores: Tensor, scale: float | Tensor) -> Tensor:
    """Return by how much rounding may change each score. It is a probability, or a product of two.

    A logit that moves by d moves p by p (1 - p) d, and a product of two sigmoids by at most twice that. d is the tolerance of the logits
    times their scale: raw outputs that agree so far give scores that agree no further. Near 1 the rounding of the score itself is more.
    """
    bounded = scores.clamp(1e-8, 1 - 1e-6)
    return 2 * bounded * (1 - bounded) * LOGIT_TOLERANCE * scale + SCORE_ROUNDING * bounded


def _needed(boxes: Tensor, valid: Tensor, cfg: Mapping[str, Any], limit: int) -> int:
    """Return how many sorted candidates decide the rows, and those that could follow the last one."""
    index, count = first_kept(boxes[None], valid[None], threshold_of(cfg), limit + BEYOND, int(cfg['nms'].get('offset', 0)))
    staying = int(count[0])
    return int(index[0, staying - 1]) + 1 if staying == limit + BEYOND else int(valid.sum())


def _judged(boxes: Tensor, rows: Candidates, cfg: Mapping[str, Any], slack: Tensor, counts: Tensor, may_be_removed: Tensor,
            may_be_added: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return which candidates stay, of which it is doubtful, and which of those that stay each comes instead of, or -1 (M,).

    In eager those take part that `counts` has. Of two whose overlap is over the threshold however it is rounded, one stays at most.
    """
    lowest = float(cfg.get('score_thr', 0))
    stays = (rows.valid & counts & ~may_be_added).cpu().numpy()
    doubtful = (((rows.scores - lowest).abs() <= slack) | may_be_removed | may_be_added).cpu().numpy()
    # Boxes that were moved apart by their class are rounded at their new place.
    moved = ROUNDING * (float(boxes.abs().max()) + float(rows.boxes.abs().max())) if len(boxes) else 0.0
    instead_of, taken = np.full(len(stays), -1), set[int]()
    # By row that is doubtful only because others may suppress it: these others.
    suppressors: dict[int, set[int]] = {}
    for row, others in overlapping(boxes, rows, slack, threshold_of(cfg), float(cfg['nms'].get('offset', 0)), moved):
        before, staying = others.index < row, stays[others.index]
        stays[row] = stays[row] and not (others.over & before & staying).any()
        if not stays[row] and len(exclusive := others.index[others.over & ~others.at_border & before & staying]):
            # One that no other comes instead of, if there is any.
            instead_of[row] = next((other for other in exclusive if other not in taken), exclusive[0])
            taken.add(instead_of[row])
        sure = set(others.index[before & others.surely_over].tolist())
        if any(stays[other] and (not doubtful[other] or (other in suppressors and suppressors[other] <= sure)) for other in sure):
            # A box that is sure to stay suppresses this one; if it goes after all, the box that suppresses it overlaps this one too.
            doubtful[row] = False
            continue
        # Of two that tie, either may suppress the other.
        may_suppress = (others.near | doubtful[others.index] | (others.at_border & staying)) & others.counts & (before | others.near)
        if may_suppress.any() and not doubtful[row]:
            suppressors[row] = set(others.index[may_suppress].tolist())
        doubtful[row] = doubtful[row] or may_suppress.any()
    device = boxes.device
    return torch.from_numpy(stays).to(device), torch.from_numpy(doubtful).to(device) & rows.valid, torch.from_numpy(instead_of).to(device)


def _more_before(places: Tensor, may_come: Tensor, instead_of: Tensor, scores: Tensor, slack: Tensor) -> Tensor:
    """Return by how many ranks at most rows at `places` (L,) move down if candidates `may_come` (J,) stay after all.

    Those count that may be better than the row. One that stays instead of a better row than this moves nothing, a second one does.
    """
    ahead = _may_be_better(places, may_come, scores, slack)
    owners, group = instead_of[may_come].unique(return_inverse=True)
    by_owner = torch.zeros(len(places), len(owners), dtype=torch.int64, device=places.device).index_add_(1, group, ahead.to(torch.int64))
    leaves = ((owners >= 0) & (owners < places[:, None])).to(torch.int64)
    return (by_owner - leaves).clamp(min=0).sum(dim=1)


def _may_be_better(places: Tensor, others: Tensor, scores: Tensor, slack: Tensor) -> Tensor:
    """Return whether a score at `others` (J,) is higher than one at `places` (L,) or ties with it (L, J)."""
    return scores[others] + slack[others] >= (scores[places] - slack[places])[:, None]
