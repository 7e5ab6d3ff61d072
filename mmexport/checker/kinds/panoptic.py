"""Compare panoptic maps (N, H, W) of class + 1000 * instance."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..reduced import by_share
from ..rules.change import LABELS, same_map
from ..rules.label_maps import OFFSET, compare_panoptic

if TYPE_CHECKING:
    from ..comparison import Comparison

CONTINUOUS, MAP = False, True


def reduced(row: Comparison) -> str | None:
    return by_share(row, 'pixel_agreement', float(row.metrics['pixel_agreement']))


def compare(names: Sequence[str], expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], evidence: Mapping[str, Tensor],
            tolerance: float, clear: float | None) -> dict[str, Any]:
    return compare_panoptic(expected[names[0]], actual[names[0]], evidence)


def little_change(name: str, one: Mapping[str, Tensor], other: Mapping[str, Tensor], classes: int, tolerance: float,
                  margin: float) -> str | None:
    return same_map(one[name], other[name], LABELS, margin)


def classes(name: str, expected: Mapping[str, Tensor]) -> Tensor:
    return expected[name] % OFFSET
