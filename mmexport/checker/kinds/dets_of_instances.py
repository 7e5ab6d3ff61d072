"""Compare instances given as ``dets`` (N, K, 5), ``labels`` (N, K) and ``masks`` (N, K, H, W), the names of mmdeploy."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from . import dets, instance

CONTINUOUS, ROW = False, instance.ROW
reduced = instance.reduced


def rows(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the outputs by the names of `instance`. A row counts if its score is not zero."""
    named = dets.rows(outputs)
    return {**named, 'masks': named['masks'].bool()}


def compare(names: Sequence[str], expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], evidence: Mapping[str, Tensor],
            tolerance: float, clear: float | None) -> dict[str, Any]:
    one, other = rows(expected), rows(actual)
    return instance.compare([*one], one, other, evidence, tolerance, clear)


def little_change(name: str, one: Mapping[str, Tensor], other: Mapping[str, Tensor], classes: int, tolerance: float,
                  margin: float) -> str | None:
    return instance.little_change(name, rows(one), rows(other), classes, tolerance, margin)


def classes(name: str, expected: Mapping[str, Tensor]) -> Tensor | None:
    return instance.classes(name, rows(expected)) if name == 'labels' else None
