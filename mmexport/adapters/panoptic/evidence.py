"""Compute the margin of each decision of the eager model; the checker tolerates differences only where it is small.

A logit that moves by d moves a sigmoid by at most d/4 and a softmax by at most d/2; hence the widths below.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...checker.rules.continuous import competing_scale
from ..specs import LOGIT_TOLERANCE

# A segment this close to a threshold of the config may be kept or dropped by rounding alone.
THRESHOLD_EDGE = 1e-3


def panoptic_evidence(decisions: dict[str, Tensor], cls_logits: Tensor, masks: Tensor, cfg: Any, void: int) -> dict[str, Tensor]:
    """Return `near` (N, H, W): pixels whose winner has a small margin, or belongs to a segment near a threshold.
    `borderline` (N): how many such segments. `candidates` (N, Q): the classes of queries that are kept, or nearly, else void.
    """
    cls_slack = LOGIT_TOLERANCE * competing_scale(cls_logits, 2) / 2
    mask_slack = LOGIT_TOLERANCE * float(masks.abs().max()) / 4
    at_score = decisions['classes'].ne(void) & ((decisions['scores'] - cfg.get('object_mask_thr', 0.8)).abs() < THRESHOLD_EDGE)
    at_ratio = decisions['kept'] & (decisions['won'] > 0) & ((decisions['ratio'] - cfg.get('iou_thr', 0.8)).abs() < THRESHOLD_EDGE)
    candidate = decisions['kept'] | at_score
    weights = torch.where(candidate, decisions['scores'], -torch.ones_like(decisions['scores']))
    product = weights[:, :, None, None] * decisions['probabilities']
    top, index = product.topk(min(2, product.shape[1]), dim=1)
    near = (top[:, 0] - top[:, -1]) < 2 * (cls_slack + mask_slack)
    edge = (at_score | at_ratio).gather(1, index[:, 0].flatten(1)).view_as(near)
    if cfg.get('filter_low_score', False):
        sure = decisions['probabilities'].gather(1, decisions['winner'][:, None])[:, 0]
        near = near | ((sure - 0.5).abs() < 2 * mask_slack)
    # Where nothing was kept the products are all negative and their order means nothing.
    near = near & (top[:, 0] > 0)
    return {'near': near | edge, 'borderline': (at_score | at_ratio).sum(dim=1),
            'candidates': torch.where(candidate, decisions['classes'], torch.full_like(decisions['classes'], void))}


def instance_evidence(chosen: Tensor, top: dict[str, Tensor], cls_logits: Tensor) -> dict[str, Tensor]:
    """Return what rounding may change: `mask_near` (N, K, H, W) of mask pixels, `edge_rows` and `row_slack` (N, K) of rows and scores.

    A score is multiplied by the mean probability of the pixels of its mask: one pixel more or less moves it, the more the fewer there
    are. Where as many pixels may flip as are sure, the mask may be another one.
    """
    slack = 2 * LOGIT_TOLERANCE * float(chosen.abs().max())
    near, sure, probabilities = (chosen.abs() < slack) & top['thing'][:, :, None, None], chosen >= slack, chosen.sigmoid()
    flips, count, total = near.sum(dim=(2, 3)), sure.sum(dim=(2, 3)), (probabilities * sure).sum(dim=(2, 3))
    positive = chosen > 0
    own = (probabilities * positive).sum(dim=(2, 3)) / (positive.sum(dim=(2, 3)) + 1e-6)
    # Without all pixels that may flip, of a probability of 0.5, and with all of them.
    means = torch.stack([total / (count + 1e-6), (total + flips / 2) / (count + flips + 1e-6)])
    moved = top['scores'] * (means - own).abs().amax(dim=0) * (flips > 0)
    # Two logits may move by a tolerance each, and a softmax by as much of itself.
    at_cut = (top['scores'] - top['edge'][:, None]).abs() < 4 * LOGIT_TOLERANCE * competing_scale(cls_logits, 2) * top['scores']
    return {'mask_near': near, 'edge_rows': at_cut | ((flips > 0) & (flips >= count)),
            'row_slack': LOGIT_TOLERANCE * (top['scores'] * own * top['thing']).amax() + moved}
