"""Compare instances: the rows of ``boxes``, ``scores``, ``labels``, ``masks`` and ``num`` together, in any order."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..reduced import REDUCED, STANDS_OUT, by_share
from ..rules.change import same_rows
from ..rules.instance_rows import compare_instances

if TYPE_CHECKING:
    from ..comparison import Comparison

CONTINUOUS, ROW = False, 'instances'


def reduced(row: Comparison) -> str | None:
    """Return why the instances fail: rows that were not found again, scores, boxes, or overlaps, which are of matched rows only."""
    limits, metrics = REDUCED[row.precision], row.metrics
    matched_share = 1 - float(metrics['rows_lost']) / max(float(metrics['rows']), 1.0)
    if not matched_share >= limits.agreement:
        return f'{matched_share:.2%} of the instances are found again, at least {limits.agreement:.0%} required in {row.precision}'
    off, allowed = float(metrics['score_error']) / max(float(metrics['best_score']), 1e-12), STANDS_OUT * limits.median
    if not off <= allowed:
        return f'a score is off by {off:.1e} of the best, limit {allowed:g} in {row.precision}'
    if not float(metrics['box_error']) <= 1:
        return f"a box is {metrics['box_error']:.0f} pixels off its mask, limit 1 in {row.precision}"
    return by_share(row, 'mask_iou', float(metrics['mask_iou']))


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
