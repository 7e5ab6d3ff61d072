"""Let eager follow the choices of a file, where rounding decides between candidates (see `mmexport.checker.kinds.places`)."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..adapters import Adapter
from ..checker.packing import unpacked
from ..checker.samples import Sample
from .eager_run import run_eager
from .network_runs import NetworkRuns

NOT_RECORDED = 'eager follows the choices of a file'


def choices_of(adapter: Adapter, sample: Sample, free: bool = True) -> dict[str, Tensor]:
    """Return what eager chose on `sample`, by output; {} if the model chooses nothing.

    Args:
        free: with those that it chooses anew in runs for a floor, see `mmexport.checker.kinds`.
    """
    outputs = {**sample.expected, **sample.raw}
    left_out = () if free else adapter.free_choices
    return {name: outputs[name] for name in adapter.choices if name in outputs and name not in left_out}


def following(adapter: Adapter, samples: Sequence[Sample], choices: Mapping[str, Mapping[str, Any]], device: torch.device) -> list[Sample]:
    """Return `samples` with what eager computes from `choices`, by sample and output. The evidence is eager's own, given them.

    A file that chooses wrongly fails all the same: its choice is compared with the scores that eager ranks by.
    """
    runs = NetworkRuns()
    runs.note = NOT_RECORDED
    return [_followed(adapter, sample, choices[sample.name], device, runs) if sample.name in choices else sample for sample in samples]


def _followed(adapter: Adapter, sample: Sample, chosen: Mapping[str, Any], device: torch.device, runs: NetworkRuns) -> Sample:
    with adapter.following({name: unpacked(values) for name, values in chosen.items()}):
        run = run_eager(adapter, runs, sample.name, 'eager', sample.image.to(device))
    # What patched eager gave was computed from eager's own choice.
    return replace(sample, expected=run.outputs, evidence=run.evidence, patched={}, raw=run.raw if sample.raw else {},
                   raw_evidence=run.raw_evidence if sample.raw else {})


def moved(adapter: Adapter, samples: Sequence[Sample], choices: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Return how many of eager's choices the file did not make, by sample."""
    return {sample.name: sum(int((unpacked(choices[sample.name][name]) != own).sum())
                             for name, own in choices_of(adapter, sample).items()) for sample in samples if sample.name in choices}
