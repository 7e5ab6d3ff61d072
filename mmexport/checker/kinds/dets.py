"""Compare detections given as ``dets`` (N, K, 5), ``labels`` (N, K) and maybe ``masks`` (N, K, h, w), the names of mmdeploy.

A row of ``dets`` is a box and its score.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import detections

CONTINUOUS, ROW = False, 'detections'
reduced = detections.reduced


def rows(outputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the outputs by the names of `detections`. A row counts if its score is not zero."""
    scores = outputs['dets'][..., 4]
    masks = {name: value for name, value in outputs.items() if name == 'masks'}
    return dict(boxes=outputs['dets'][..., :4], scores=scores, labels=outputs['labels'], num=(scores != 0).sum(dim=1), **masks)


def compare(names: Sequence[str], expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], evidence: Mapping[str, Tensor],
            tolerance: float, clear: float | None) -> dict[str, Any]:
    masks = [name for name in names if name == 'masks']
    # Masks are probabilities, or 0 and 1.
    return detections.compare([*detections.NAMES, *masks], rows(expected), rows(actual), evidence, tolerance, clear, 0.5)


def little_change(name: str, one: Mapping[str, Tensor], other: Mapping[str, Tensor], classes: int, tolerance: float,
                  margin: float) -> str | None:
    return detections.little_change('boxes', rows(one), rows(other), classes, tolerance, margin) if name == 'dets' else None


def classes(name: str, expected: Mapping[str, Tensor]) -> torch.Tensor | None:
    return detections.classes(name, rows(expected)) if name == 'labels' else None
