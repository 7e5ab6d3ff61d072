"""Compute counts and means of masks without copies: as float64 a mask takes eight times its memory."""
from __future__ import annotations

import torch
from torch import Tensor


def share(mask: Tensor) -> float:
    """Return the share of `mask` (bool) that is true; nan of an empty one."""
    return int(mask.count_nonzero()) / mask.numel() if mask.numel() else float('nan')


def pairs_of(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pairs of values (2, P) of two maps of integers, and their counts. The pairs are sorted."""
    first, index = one.flatten().unique(return_inverse=True)
    second, beside = other.flatten().unique(return_inverse=True)
    keys, counts = (index * len(second) + beside).unique(return_counts=True)
    width = max(len(second), 1)
    return torch.stack([first[keys // width], second[keys % width]]), counts
