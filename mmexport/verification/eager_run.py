"""Run a model once, and hold its outputs and evidence by name."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from ..adapters import Adapter
from ..adapters.base import OutputSpec
from ..branches import recorded
from ..checker.timing import typical
from .network_runs import NetworkRuns


def typical_seconds(adapter: Adapter, image: Tensor) -> float:
    """Return the median time of a call of the unpatched eager model. It is measured as that of the file."""
    with torch.no_grad():
        inputs = adapter.inputs_of(image)
        return typical(lambda: adapter(*inputs), image.device)


@dataclass(frozen=True)
class EagerRun:
    """Hold outputs by name with their evidence, on the CPU. Raw ones are those that are checked and not delivered."""

    outputs: dict[str, Tensor]
    evidence: dict[str, Tensor]
    raw: dict[str, Tensor]
    raw_evidence: dict[str, Tensor]


def run_eager(adapter: Adapter, runs: NetworkRuns, name: str, when: str, image: Tensor) -> EagerRun:
    with torch.no_grad():
        # A copy: a model that writes into its input must not change what the file is given.
        inputs = adapter.network_inputs(image.clone())
        raw, recorded_evidence = runs.run(adapter, name, when, *inputs)
        with recorded(runs.branches[name], *inputs) if when == 'eager' and runs.note is None else nullcontext():
            outputs = adapter.decide(raw, *inputs)
        final = adapter.outputs == 'final'
        hidden = bool(adapter.hidden_specs)
        evidence = adapter.evidence(raw, inputs[0], recorded_evidence) if final and when == 'eager' else recorded_evidence
    return EagerRun(_named(adapter.specs, outputs), _on_cpu(evidence) if final or not hidden else {},
                    _named(adapter.hidden_specs, adapter.hidden(raw)), _on_cpu(recorded_evidence) if hidden else {})


def inputs_by_name(adapter: Adapter, image: Tensor) -> dict[str, Tensor]:
    """Return what the file takes for `image`; {} where that is the picture itself."""
    inputs = adapter.inputs_of(image)
    if len(inputs) == 1 and inputs[0] is image:
        return {}
    return {spec.name: tensor.cpu().clone() for spec, tensor in zip(adapter.input_specs, inputs, strict=True)}


def _named(specs: Sequence[OutputSpec], outputs: Sequence[Tensor]) -> dict[str, Tensor]:
    return {spec.name: output.cpu() for spec, output in zip(specs, outputs, strict=True)}


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key: tensor.cpu() for key, tensor in tensors.items()}
