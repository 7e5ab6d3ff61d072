"""Compute counts and means of masks without copies: as float64 a mask takes eight times its memory."""
from __future__ import annotations

import torch
from torch import Tensor


def share(mask: Tensor) -> float:
    """Return the share of `mask` (bool) that is true; nan of an empty one."""
    return int(mask.count_nonzero()) / mask.numel() if mask.numel() else float('nan')


def share_of_rows(num: Tensor, near: Tensor) -> float:
    """Return the share of `near` (N, K, ...) that is true, among the first `num` (N,) rows; 0 if there are none."""
    rows = [each[:int(count)] for each, count in zip(near, num, strict=True)]
    total = sum(part.numel() for part in rows)
    return sum(int(part.count_nonzero()) for part in rows) / total if total else 0.0


def pairs_of(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pairs of values (2, P) of two maps of integers, and their counts. The pairs are sorted."""
    first, index = one.flatten().unique(return_inverse=True)
    second, beside = other.flatten().unique(return_inverse=True)
    keys, counts = (index * len(second) + beside).unique(return_counts=True)
    width = max(len(second), 1)
    return torch.stack([first[keys // width], second[keys % width]]), counts
