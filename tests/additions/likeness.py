"""Add a kind of output of a user's project, for the checker: torch alone."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

CONTINUOUS = True


def compare(names: Sequence[str], expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], evidence: Mapping[str, Tensor],
            tolerance: float, clear: float | None) -> dict[str, Any]:
    """Compare by the Frobenius norm of each picture's matrix."""
    one, other = expected[names[0]].double(), actual[names[0]].double()
    error = (one - other).flatten(1).norm(dim=1) / one.flatten(1).norm(dim=1).clamp_min(1e-12)
    return dict(max_abs=float((one - other).abs().max()), max_rel=float(error.max()), median=float(error.median()),
                beyond=float((error > tolerance).double().mean()), metrics={'norms': error.tolist()})


def constant(values: Sequence[Tensor]) -> Tensor:
    return torch.stack([value.mean(dim=0) for value in values]).mean(dim=0)[None]


def little_change(name: str, one: Mapping[str, Tensor], other: Mapping[str, Tensor], classes: int, tolerance: float,
                  margin: float) -> str | None:
    return 'two pictures have one matrix' if torch.allclose(one[name], other[name]) else None
