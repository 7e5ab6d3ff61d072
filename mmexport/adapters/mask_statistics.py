"""Compute statistics of enlarged masks in one pass over a few queries at a time.

Enlarged masks of all queries are a hundred pictures. Several passes over them, each into memory of its own, took longer than half of the
network; a few queries at a time stay in the processor's cache, with the same operations on the same numbers.
"""
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..ops.mask_enlarging import enlarge_masks

# Queries at a time. At 512 x 512 their masks are 10 MB.
QUERIES = 10


@dataclass(frozen=True)
class MaskStatistics:
    """Hold statistics of enlarged mask logits (N, Q, H, W).

    Attributes:
        winner: (N, H, W), the query with the largest weight times probability.
        sure: (N, H, W), whether the winner's own probability is at least one half.
        area: (N, Q), pixels of a probability of at least one half.
        inside: (N, Q), the mean probability where the mask is positive.
        positive: (N, Q + 1, H, W), where the mask is positive, and nowhere in the last; None where it was not asked for.
        columns, rows: (N, Q, W) and (N, Q, H), which of them have a positive pixel; None likewise.
    """

    winner: Tensor
    sure: Tensor
    area: Tensor
    inside: Tensor
    positive: Tensor | None
    columns: Tensor | None
    rows: Tensor | None


def mask_statistics(mask_logits: Tensor, size: tuple[int, int], weights: Tensor, masks_too: bool) -> MaskStatistics:
    """Enlarge mask_logits (N, Q, h, w) to `size` and compute their statistics; `weights` (N, Q) are of the queries."""
    best, winner = (torch.empty(0, device=weights.device),) * 2
    halves, areas, insides, positives, columns, rows = [], [], [], [], [], []
    for first in range(0, mask_logits.shape[1], QUERIES):
        masks = enlarge_masks(mask_logits[:, first:first + QUERIES], size)
        probabilities = masks.sigmoid()
        half = probabilities >= 0.5
        halves.append(half)
        # As numbers: PyTorch sums booleans on one core, many times as slowly.
        areas.append(half.to(masks.dtype).sum(dim=(2, 3)))
        if masks_too:
            positive = masks > 0
            filled = positive.to(masks.dtype)
            by_row = filled.sum(dim=3)
            insides.append((probabilities * filled).sum(dim=(2, 3)) / (by_row.sum(dim=2) + 1e-6))
            positives.append(positive)
            rows.append(by_row > 0)
            # Of the logits, which have vectorized reductions; torch.any of booleans takes twenty times as long.
            columns.append(masks.amax(dim=2) > 0)
        products = weights[:, first:first + QUERIES, None, None] * probabilities
        for number in range(masks.shape[1]):
            product = products[:, number]
            if first + number == 0:
                best, winner = product, torch.zeros_like(product, dtype=torch.int32)
                continue
            # Strictly: of equal products the first query wins, as argmax has it.
            ahead = product > best
            best, winner = torch.maximum(product, best), torch.where(ahead, first + number, winner)
    winner = winner.to(torch.int64)
    sure = torch.cat(halves, dim=1).gather(1, winner[:, None])[:, 0]
    if not masks_too:
        return MaskStatistics(winner, sure, torch.cat(areas, dim=1), areas[0], None, None, None)
    nowhere = torch.zeros_like(positives[0][:, :1])
    return MaskStatistics(winner, sure, torch.cat(areas, dim=1), torch.cat(insides, dim=1), torch.cat([*positives, nowhere], dim=1),
                          torch.cat(columns, dim=1), torch.cat(rows, dim=1))
