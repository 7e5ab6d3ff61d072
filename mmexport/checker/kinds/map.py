"""Compare maps of values (N, h, w), of which each pixel counts."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ..rules.change import middle, same_values
from ..rules.continuous import Units, compare_continuous

CONTINUOUS = True

UNITS = Units()


def compare(names: Sequence[str], expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], evidence: Mapping[str, Tensor],
            tolerance: float, clear: float | None) -> dict[str, Any]:
    return compare_continuous(UNITS, names[0], expected, actual, evidence, tolerance, clear)


def constant(values: Sequence[Tensor]) -> Tensor:
    return middle(values)


def little_change(name: str, one: Mapping[str, Tensor], other: Mapping[str, Tensor], classes: int, tolerance: float,
                  margin: float) -> str | None:
    return same_values(one[name][:, None], other[name][:, None], margin * tolerance)
