"""Compare maps of values by class (N, C, h, w), of which each pixel counts."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..rules.change import same_values
from ..rules.continuous import Units, agreement, compare_continuous, competing_scale

CONTINUOUS = True


class Pixels(Units):
    """Count pixels; the channels are scores of classes."""

    def scale(self, expected: Tensor) -> Tensor:
        return expected.abs().clamp_min(competing_scale(expected, 1))

    def largest(self, error: Tensor) -> Tensor:
        return error.amax(dim=1).flatten()

    def decision_axis(self, expected: Tensor) -> int | None:
        return 1

    def metrics(self, expected: Tensor, actual: Tensor) -> dict[str, float]:
        return {'pixel_agreement': agreement(expected, actual, 1)} if expected.shape[1] > 1 else {}


UNITS = Pixels()


def compare(names: Sequence[str], expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], evidence: Mapping[str, Tensor],
            tolerance: float, clear: float | None) -> dict[str, Any]:
    return compare_continuous(UNITS, names[0], expected, actual, evidence, tolerance, clear)


def constant(values: Sequence[Tensor]) -> Tensor:
    """Return the mid-range of each channel."""
    low = torch.stack([value.amin(dim=(0, 2, 3)) for value in values]).amin(0)
    high = torch.stack([value.amax(dim=(0, 2, 3)) for value in values]).amax(0)
    return ((low + high) / 2)[None, :, None, None]


def little_change(name: str, one: Mapping[str, Tensor], other: Mapping[str, Tensor], classes: int, tolerance: float,
                  margin: float) -> str | None:
    return same_values(one[name], other[name], margin * tolerance)
