"""Compute statistics of enlarged masks: ``tiles``, a few queries at a time, or ``whole`` maps.

Enlarged masks of all queries are a hundred pictures. Several passes over them, each into memory of its own, took longer than half of the
network; a few queries at a time stay in the processor's cache, with the same operations on the same numbers. Inductor fuses the passes
over whole maps itself, and of tiles it makes branches that do not vectorize (``benchmarks/results``: ``final`` over ``raw`` was 1.340 in
``before_final_cost_aotinductor.json``, and 1.145 in ``final_cost_aotinductor.json``).
"""
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...compat.exporting import is_in_onnx_trace
from ..mask_enlarging import enlarge_masks
from ..op import form_of

# Queries at a time. At 512 x 512 their masks are 10 MB.
QUERIES = 10


@dataclass(frozen=True)
class MaskStatistics:
    """Hold statistics of enlarged mask logits (N, Q, H, W).

    Attributes:
        winner: (N, H, W), the query with the largest weight times probability.
        sure: (N, H, W), whether the winner's own probability is at least one half.
        area: (N, Q), pixels of a probability of at least one half.
        inside: (N, Q), the mean probability where the mask is positive; to be read with `masks_too` only.
        positive: (N, Q + 1, H, W), where the mask is positive, and nowhere in the last; None where it was not asked for, or `logits` are
            there.
        columns, rows: (N, Q, W) and (N, Q, H), which of them have a positive pixel; None where they were not asked for.
        logits: (N, Q, H, W), the enlarged masks, in the form ``whole``.
    """

    winner: Tensor
    sure: Tensor
    area: Tensor
    inside: Tensor
    positive: Tensor | None
    columns: Tensor | None
    rows: Tensor | None
    logits: Tensor | None = None

    def masks_of(self, query: Tensor, thing: Tensor) -> Tensor:
        """Return where the masks of `query` (N, K) are positive, (N, K, H, W); nowhere of those that are no `thing` (N, K)."""
        if self.logits is None:
            assert self.positive is not None
            # The mask after the last query's is empty.
            last = self.positive.shape[1] - 1
            return masks_at(self.positive, torch.where(thing, query, torch.full_like(query, last)))
        chosen = torch.where(thing[:, :, None, None], masks_at(self.logits, query), -1.0)
        # With a tensor, for AOTInductor: see `mmexport.backends.aotinductor.internals`.
        return torch.ops.aten.gt.Tensor(chosen, torch.zeros((), dtype=chosen.dtype, device=chosen.device))  # type: ignore[no-any-return]


def masks_at(masks: Tensor, query: Tensor) -> Tensor:
    """Take masks by query: (N, Q, H, W), query (N, K) -> (N, K, H, W), without an index of full size."""
    image = torch.arange(query.shape[0], device=query.device)[:, None]
    return masks[image, query]


def mask_statistics(mask_logits: Tensor, size: tuple[int, int], weights: Tensor, masks_too: bool) -> MaskStatistics:
    """Enlarge mask_logits (N, Q, h, w) to `size` and compute their statistics.

    Args:
        weights: (N, Q), of the queries.
        masks_too: also compute `positive` and `inside`.
    """
    return (_tiles if form_of('mask_statistics') == 'tiles' else _whole)(mask_logits, size, weights, masks_too)


def _whole(mask_logits: Tensor, size: tuple[int, int], weights: Tensor, masks_too: bool) -> MaskStatistics:
    masks = enlarge_masks(mask_logits, size)
    probabilities = masks.sigmoid()
    # argmax: of equal products the first query wins.
    winner = (weights[:, :, None, None] * probabilities).argmax(dim=1)
    sure = probabilities.gather(1, winner[:, None])[:, 0] >= 0.5
    area = (probabilities >= 0.5).to(masks.dtype).sum(dim=(2, 3))
    if not masks_too:
        return MaskStatistics(winner, sure, area, area, None, None, None)
    filled = (masks > 0).to(masks.dtype)
    by_row = filled.sum(dim=3)
    inside = (probabilities * filled).sum(dim=(2, 3)) / (by_row.sum(dim=2) + 1e-6)
    return MaskStatistics(winner, sure, area, inside, None, masks.amax(dim=2) > 0, by_row > 0, masks)


def _tiles(mask_logits: Tensor, size: tuple[int, int], weights: Tensor, masks_too: bool) -> MaskStatistics:
    best, winner = (torch.empty(0, device=weights.device),) * 2
    halves, areas, insides, positives, columns, rows = [], [], [], [], [], []
    # The TorchScript-based ONNX exporter of torch 2.1 writes the number in `where` as an int64, whatever the other operand is.
    integers = torch.int64 if is_in_onnx_trace() else torch.int32
    for first in range(0, mask_logits.shape[1], QUERIES):
        masks = enlarge_masks(mask_logits[:, first:first + QUERIES], size)
        probabilities = masks.sigmoid()
        half = probabilities >= 0.5
        halves.append(half)
        # Sum floats: PyTorch sums booleans on one core, which is much slower.
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
                best, winner = product, torch.zeros_like(product, dtype=integers)
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
