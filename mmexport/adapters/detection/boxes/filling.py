"""Fill up rows, so that every picture has as many."""
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def filled(rows: Tensor, count: int, value: float = 0.0) -> Tensor:
    """Return `rows`, followed by `value`, `count` in all."""
    return torch.cat([rows, rows.new_full((count - len(rows), *rows.shape[1:]), value)])


def stacked(parts: Sequence[Tensor]) -> Tensor:
    """Return the rows of each picture as one tensor (N, J, D), of one row at least; -1 fills up."""
    longest = max([len(part) for part in parts] + [1])
    return torch.stack([filled(part, longest, -1.0) for part in parts])
