"""Compare detections: the rows of ``boxes``, ``scores``, ``labels`` and ``num`` together, in any order."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..reduced import REDUCED, STANDS_OUT
from ..rules.change import CHANGED_PIXELS, LABELS
from ..rules.detection_rows import compare_detections, overlaps

if TYPE_CHECKING:
    from ..comparison import Comparison

CONTINUOUS, ROW = False, 'detections'
NAMES = ('boxes', 'scores', 'labels', 'num')


def compare(names: Sequence[str], expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], evidence: Mapping[str, Tensor],
            tolerance: float, clear: float | None, inside: float = 0.0) -> dict[str, Any]:
    return compare_detections({name: expected[name] for name in names}, {name: actual[name] for name in names}, evidence, tolerance, inside)


def reduced(row: Comparison) -> str | None:
    """Return why detections fail in reduced precision: rows that were not found again, or scores."""
    limits, metrics = REDUCED[row.precision], row.metrics
    matched = 1 - (float(metrics['rows_lost']) + float(metrics['rows_new'])) / max(float(metrics['rows']), 1.0)
    if not matched >= limits.agreement:
        return f'{matched:.2%} of the detections are found again, at least {limits.agreement:.0%} required in {row.precision}'
    off, allowed = float(metrics['score_error']) / max(float(metrics['best_score']), 1e-12), STANDS_OUT * limits.median
    if not off <= allowed:
        return f'a score is off by {off:.1e} of the best, limit {allowed:g} in {row.precision}'
    moved = float(metrics['box_error']) / max(float(metrics['reach']), 1e-12)
    if not moved <= limits.median:
        return f'a box is off by {moved:.1e} of the largest coordinate, limit {limits.median:g} in {row.precision}'
    return None


def little_change(name: str, one: Mapping[str, Tensor], other: Mapping[str, Tensor], classes: int, tolerance: float,
                  margin: float) -> str | None:
    """Return why the boxes of two inputs are too much alike, or None."""
    if name != 'boxes':
        return None
    count, others = int(one['num'][0]), int(other['num'][0])
    if min(count, others) < LABELS:
        return f'only {min(count, others)} detections (at least {LABELS} required)'
    same = overlaps(one['boxes'][0, :count], other['boxes'][0, :others]).amax(dim=1)
    changed = float((same < 0.9).double().mean())
    if changed < margin * CHANGED_PIXELS:
        return f'only {changed:.1%} of the boxes change between two inputs (at least {CHANGED_PIXELS:.0%} required)'
    return None


def classes(name: str, expected: Mapping[str, Tensor]) -> Tensor | None:
    """Return the labels of the rows that were found; the others are padding."""
    if name != 'labels':
        return None
    return torch.cat([expected['labels'][image, :int(count)] for image, count in enumerate(expected['num'])])
