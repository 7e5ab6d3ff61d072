"""Compare label maps (N, 1, H, W), as the files of mmdeploy have them."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from . import labels

CONTINUOUS, MAP = False, True
reduced, little_change, classes = labels.reduced, labels.little_change, labels.classes


def compare(names: Sequence[str], expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], evidence: Mapping[str, Tensor],
            tolerance: float, clear: float | None) -> dict[str, Any]:
    one, other = ({name: outputs[name][:, 0] for name in names} for outputs in (expected, actual))
    return labels.compare(names, one, other, evidence, tolerance, clear)
