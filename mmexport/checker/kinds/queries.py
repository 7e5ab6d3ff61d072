"""Compare values by query (N, Q, ...), of which each query counts."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..rules.change import middle, same_values
from ..rules.continuous import Units, agreement, compare_continuous, competing_scale, largest_value

CONTINUOUS = True


class Queries(Units):
    """Count queries; values (N, Q, C) are scores of classes, and others are masks."""

    exempts = False

    def scale(self, expected: Tensor) -> Tensor:
        return expected.abs().clamp_min(competing_scale(expected, 2)) if expected.dim() == 3 else largest_value(expected)

    def largest(self, error: Tensor) -> Tensor:
        return error.flatten(2).amax(dim=2).flatten()

    def decision_axis(self, expected: Tensor) -> int | None:
        return 2 if expected.dim() == 3 else None

    def metrics(self, expected: Tensor, actual: Tensor) -> dict[str, float]:
        if expected.dim() == 3:
            return {'class_agreement': agreement(expected, actual, 2)}
        one, other = expected > 0, actual > 0
        union = (one | other).flatten(2).sum(2).double()
        both = (one & other).flatten(2).sum(2).double()
        return {'mask_iou': float(torch.where(union > 0, both / union.clamp_min(1), torch.ones_like(both)).mean())}


UNITS = Queries()


def compare(names: Sequence[str], expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], evidence: Mapping[str, Tensor],
            tolerance: float, clear: float | None) -> dict[str, Any]:
    return compare_continuous(UNITS, names[0], expected, actual, evidence, tolerance, clear)


def constant(values: Sequence[Tensor]) -> Tensor:
    return middle(values)


def little_change(name: str, one: Mapping[str, Tensor], other: Mapping[str, Tensor], classes: int, tolerance: float,
                  margin: float) -> str | None:
    return same_values(one[name], other[name], margin * tolerance, 'queries')
