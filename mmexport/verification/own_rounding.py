"""Measure how far eager's own outputs move where the same model rounds otherwise: in float64, and on other kernels of torch.

An output may be ill-conditioned at one size: a GroupNorm over the single cell of a small level divides by the deviation of eight values,
which may be nearly equal; a second stage may move a box by ten times what its proposal moved. Noise on the picture does not show that; the
rounding of all layers before does. A file rounds otherwise than eager, so both are right, and as far from each other as eager is from
itself. Float64 alone is not enough: eager's rounding may cancel on that input, and that of the same sums in another order does not.
"""
from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ..adapters import Adapter
from ..checker.compare import OF_ONE_SAMPLE, compare, rounding_key
from ..checker.comparison import BOTH, EAGER, FAR, WORST, Comparison
from ..checker.samples import Sample
from ..utils.randomness import fixed_seed
from ..utils.skipped import skip
from .choices import choices_of


def a_little_off(rows: Iterable[Comparison]) -> set[str]:
    """Return the samples with a continuous output, or a detection, that rounding may explain."""
    return {row.sample for row in rows if row.stage == EAGER and not row.passed and not row.problem and _measured(row)
            and row.max_rel is not None and row.max_rel <= FAR * row.tolerance}


def roundings_of(adapter: Adapter, sample: Sample, device: torch.device, tolerance: float) -> dict[str, float]:
    """Return how far eager is from itself on `sample`, of outputs where that matters. It is relative to the scale.

    A model that cannot run in float64 (a dtype is written in its code) has its other kernels alone, and the report says so. A difference
    of 1e-2 is a decision inside the network that falls otherwise, and no rounding.
    """
    errors: dict[str, float] = {}
    for specs, expected, outputs, evidence in _otherwise_rounded(adapter, sample, device):
        for row in compare(specs, expected, outputs, evidence, sample=sample.name, stage='eager itself', tolerance=tolerance):
            if _measured(row) and row.max_rel is not None and tolerance < BOTH * row.max_rel < BOTH * WORST:
                key = rounding_key(row.output)
                errors[key] = max(errors.get(key, 0.0), row.max_rel)
    return errors


def _measured(row: Comparison) -> bool:
    """Return whether a row has one error for values that stand for the same; rows that were lost or found are decisions."""
    return row.continuous or (row.output in OF_ONE_SAMPLE and not row.lost)


def _otherwise_rounded(adapter: Adapter, sample: Sample, device: torch.device) -> Iterator[tuple[Any, ...]]:
    """Give specs, eager's outputs, those of another run, and evidence: of the outputs, and of the raw ones if the sample has them."""
    with torch.backends.mkldnn.flags(enabled=False), torch.backends.cudnn.flags(enabled=False):
        runs = _run(adapter, sample, device, Tensor.float)
    yield from runs
    try:
        yield from _run(copy.deepcopy(adapter).double(), sample, device, Tensor.double)
    except (RuntimeError, TypeError, NotImplementedError) as exc:
        skip('eager in float64', exc, 'its rounding is measured on other kernels of torch alone')


def _run(adapter: Adapter, sample: Sample, device: torch.device, convert: Callable[[Tensor], Tensor]) -> list[tuple[Any, ...]]:
    with torch.no_grad(), fixed_seed(), adapter.following(choices_of(adapter, sample)):
        inputs = [_converted(tensor, convert) for tensor in adapter.network_inputs(sample.image.to(device))]
        raw, _ = adapter.run_with_evidence(*inputs)
        outputs = adapter.decide(raw, *inputs)
    levels = [(adapter.specs, sample.expected, outputs, sample.evidence)]
    if sample.raw:
        levels.append((adapter.hidden_specs, sample.raw, adapter.hidden(raw), sample.raw_evidence))
    return [([spec.as_dict() for spec in specs], expected, _as_float32(actual), evidence) for specs, expected, actual, evidence in levels]


def _as_float32(outputs: Sequence[Tensor]) -> list[Tensor]:
    return [_converted(tensor, Tensor.float).cpu() for tensor in outputs]


def _converted(tensor: Tensor, convert: Callable[[Tensor], Tensor]) -> Tensor:
    return convert(tensor) if tensor.is_floating_point() else tensor
