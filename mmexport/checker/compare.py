"""Compare all outputs of one input: counts, names, shapes, dtypes, then values. NaN never passes."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .comparison import ALL, COUNT, DEFAULT_TOLERANCE, Comparison, limit_of
from .kinds import kind_of
from .reduced import FULL, REDUCED

Spec = Mapping[str, Any]
Tensors = Mapping[str, Tensor]


# Rows of which the evidence tells whether rounding may change them: what noise does to those of one sample excuses none of another.
OF_ONE_SAMPLE = ('detections',)
# What the evidence allows of them, in the unit of the value; the tolerance makes it, and what makes that wider does so with these.
SLACKS = ('row_slack', 'mask_slack', 'maybe_slack', 'maybe_box_slack')
# Endings of keys in the floors.
LOST, MEDIAN, ROUNDING = ': lost', ': median', ': rounding'


def lost_key(name: str) -> str:
    """Return the key in the floors of the share of instances that noise loses."""
    return name + LOST


def median_key(name: str) -> str:
    """Return the key in the floors of the median error under noise."""
    return name + MEDIAN


def rounding_key(name: str) -> str:
    """Return the key in the floors of what rounding changes in eager. It is a sample's own, and counts for no other."""
    return name + ROUNDING


def own_floors(floors: Mapping[str, float]) -> dict[str, float]:
    """Return the part of a sample's floors that counts for it alone."""
    return {key: value for key, value in floors.items() if key.endswith(ROUNDING) or output_of(key) in OF_ONE_SAMPLE}


def output_of(key: str) -> str:
    """Return the output whose floor a key of the floors is of."""
    return next((key.removesuffix(end) for end in (LOST, MEDIAN, ROUNDING) if key.endswith(end)), key)


def compare(specs: Sequence[Spec], expected: Tensors, actual: Sequence[Tensor], evidence: Tensors, *, sample: str, stage: str,
            floors: Mapping[str, float] | None = None, tolerance: float = DEFAULT_TOLERANCE, precision: str = FULL) -> list[Comparison]:
    """Compare all outputs of one sample and return a row for each.

    Args:
        specs: the manifest's outputs, in order (name, dtype, kind).
        expected: eager's outputs by name.
        actual: what was returned, in order.
        evidence: what eager knows about its own decisions, see `mmexport.adapters`.
        floors: by output name, see `Comparison.floor`.
        precision: what the file computes in.
    """
    def row(name: str, kind: str, **facts: Any) -> Comparison:
        return Comparison(sample, name, stage, kind, tolerance, floor=(floors or {}).get(name, 0.0),
                          lost_floor=(floors or {}).get(lost_key(name), 0.0), median_floor=(floors or {}).get(median_key(name), 0.0),
                          rounding=(floors or {}).get(rounding_key(name), 0.0), precision=precision, **facts)

    names = [str(spec['name']) for spec in specs]
    if len(actual) != len(specs):
        return [row(ALL, COUNT, problem=f'{len(actual)} outputs instead of {len(specs)} ({", ".join(names)}): one was lost '
                    'or added')]
    if sorted(names) != sorted(expected):
        return [row(ALL, COUNT, problem=f'outputs are named {names}, expected {sorted(expected)}')]
    by_name = dict(zip(names, actual, strict=True))
    broken = [row(str(spec['name']), str(spec['kind']), problem=problem) for spec in specs
              if (problem := _shape_or_dtype(expected[str(spec['name'])], by_name[str(spec['name'])]))]
    if broken:
        return broken
    clear = None if precision == FULL else 2 * REDUCED[precision].median
    rows, groups = [], dict[str, list[str]]()
    for spec in specs:
        name, kind = str(spec['name']), str(spec['kind'])
        if getattr(kind_of(kind), 'ROW', None):
            groups.setdefault(kind, []).append(name)
        else:
            rows.append(row(name, kind, **kind_of(kind).compare([name], expected, by_name, evidence, tolerance, clear)))
    for kind, group in groups.items():
        together = kind_of(kind).ROW
        wider = limit_of(tolerance, (floors or {}).get(rounding_key(together), 0.0)) / tolerance if together in OF_ONE_SAMPLE else 1.0
        allowed = {name: value * wider if name in SLACKS else value for name, value in evidence.items()}
        rows.append(row(together, kind, **kind_of(kind).compare(group, expected, by_name, allowed, tolerance * wider, clear)))
    return rows


def unclear(specs: Sequence[Spec], expected: Tensors, evidence: Tensors, floors: Mapping[str, float], tolerance: float) -> str | None:
    """Return why outputs cannot be compared, not even with themselves: eager is unsure of too many decisions. None if they can be."""
    rows = compare(specs, expected, [expected[str(spec['name'])] for spec in specs], evidence, sample='', stage='itself', floors=floors,
                   tolerance=tolerance)
    return next((row.problem for row in rows if row.problem), None)


def _shape_or_dtype(expected: Tensor, actual: Any) -> str | None:
    if not isinstance(actual, Tensor):
        return f'is a {type(actual).__name__}, not a tensor'
    if actual.shape != expected.shape:
        return f'shape {tuple(actual.shape)} instead of {tuple(expected.shape)}: a size may be baked into the graph'
    if actual.dtype != expected.dtype:
        return f'dtype {actual.dtype} instead of {expected.dtype}: are two outputs in the wrong order?'
    for name, tensor in (('expected', expected), ('actual', actual)):
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return f'NaN or inf in the {name} values'
    return None
