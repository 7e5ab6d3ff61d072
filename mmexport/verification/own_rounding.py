"""Measure how far eager's own outputs are from those of the same model in float64.

An output may be ill-conditioned at one size: a GroupNorm over the single cell of a small level divides by the deviation of eight values,
which may be nearly equal. Noise on the picture does not show that; the rounding of all layers before does. A file rounds otherwise than
eager, so both are right, and as far from each other as each is from float64.
"""
from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..adapters import Adapter
from ..checker.check import EAGER
from ..checker.compare import compare, rounding_key
from ..checker.comparison import BOTH, FAR, WORST, Comparison
from ..checker.samples import Sample
from ..utils.randomness import fixed_seed
from ..utils.skipped import skip
from .choices import choices_of


def a_little_off(rows: Iterable[Comparison]) -> set[str]:
    """Return the samples of which a continuous output is off by what rounding may explain."""
    return {row.sample for row in rows if row.stage == EAGER and not row.passed and not row.problem and row.continuous
            and row.max_rel is not None and row.max_rel <= FAR * row.tolerance}


def roundings_of(adapter: Adapter, sample: Sample, device: torch.device, tolerance: float) -> dict[str, float]:
    """Return how far eager is from float64 on `sample`, of outputs where that matters. It is relative to the scale.

    A model that cannot run in float64 (a dtype is written in its code) has none: the tolerance alone counts, and the report says so. A
    difference of 1e-2 is a decision inside the network that falls otherwise in float64, and no rounding.
    """
    try:
        runs = _in_float64(adapter, sample, device)
    except (RuntimeError, TypeError, NotImplementedError) as exc:
        skip('eager in float64', exc, 'only the tolerance counts')
        return {}
    errors = {}
    for specs, expected, outputs, evidence in runs:
        for row in compare(specs, expected, outputs, evidence, sample=sample.name, stage='float64', tolerance=tolerance):
            if row.continuous and row.max_rel is not None and tolerance < BOTH * row.max_rel < BOTH * WORST:
                errors[rounding_key(row.output)] = row.max_rel
    return errors


def _in_float64(adapter: Adapter, sample: Sample, device: torch.device) -> list[tuple[Any, ...]]:
    """Return specs, eager's outputs, those of float64, and evidence: of the outputs, and of the raw ones if the sample has them."""
    exact = copy.deepcopy(adapter).double()
    with torch.no_grad(), fixed_seed(), exact.following(choices_of(adapter, sample)):
        inputs = [_converted(tensor, Tensor.double) for tensor in exact.network_inputs(sample.image.to(device))]
        raw, _ = exact.run_with_evidence(*inputs)
        outputs = exact.decide(raw, *inputs)
    levels = [(adapter.specs, sample.expected, outputs, sample.evidence)]
    if sample.raw:
        levels.append((adapter.raw_specs, sample.raw, raw, sample.raw_evidence))
    return [([spec.as_dict() for spec in specs], expected, _as_float32(actual), evidence) for specs, expected, actual, evidence in levels]


def _as_float32(outputs: Sequence[Tensor]) -> list[Tensor]:
    return [_converted(tensor, Tensor.float).cpu() for tensor in outputs]


def _converted(tensor: Tensor, convert: Callable[[Tensor], Tensor]) -> Tensor:
    return convert(tensor) if tensor.is_floating_point() else tensor
