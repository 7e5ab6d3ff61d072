"""Compare instances: the rows of ``boxes``, ``scores``, ``labels``, ``masks`` and ``num`` together, in any order."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..change import same_rows
from ..instances import compare_instances

CONTINUOUS, ROW = False, 'instances'


def compare(names: Sequence[str], expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], evidence: Mapping[str, Tensor],
            tolerance: float, clear: float | None) -> dict[str, Any]:
    return compare_instances({name: expected[name] for name in names}, {name: actual[name] for name in names}, evidence, tolerance)


def little_change(name: str, one: Mapping[str, Tensor], other: Mapping[str, Tensor], classes: int, tolerance: float,
                  margin: float) -> str | None:
    return same_rows(one, other, margin) if name == 'masks' else None


def classes(name: str, expected: Mapping[str, Tensor]) -> Tensor | None:
    """Return the labels of the rows that were found; the others are padding."""
    if name != 'labels':
        return None
    return torch.cat([expected['labels'][image, :int(count)] for image, count in enumerate(expected['num'])])
