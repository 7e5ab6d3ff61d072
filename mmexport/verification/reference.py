"""Hold what the unpatched eager model answers on every input."""
from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..adapters import Adapter
from ..branches import Branches
from ..checker.compare import output_of
from ..checker.samples import Sample
from ..inputs.shapes import Plan
from .test_step import RAW_HOLDS_NONE, PipelineCheck


@dataclass(frozen=True)
class Reference:
    """Hold what one model answers unpatched, with which files are compared.

    Attributes:
        samples: inputs with eager's outputs, the traced one first.
        plan: shapes of the inputs that were planned, and why some were left out.
        branches: the Python branches of the model.
        pipelines: what ``test_step`` answered, compared with eager.
        level: of the outputs, ``final`` or ``raw``; one of ``final`` has the raw outputs too.
        key: of the model's weights and the options that it was computed with.
    """

    samples: tuple[Sample, ...]
    plan: Plan
    branches: Branches = Branches()
    pipelines: tuple[PipelineCheck, ...] = ()
    level: str = 'final'
    key: str = ''

    def fits(self, key: str, level: str) -> bool:
        """Return whether it is of the model and the options of `key`. It must have the outputs of `level`."""
        return self.key == key and self.level in ('final', level)

    def at(self, adapter: Adapter) -> Reference:
        """Return the reference for the outputs of `adapter`."""
        if adapter.outputs == self.level:
            return self
        names = [spec.name for spec in adapter.specs]
        skipped = tuple(PipelineCheck(sample.name, skipped=RAW_HOLDS_NONE) for sample in self.samples)
        return replace(self, samples=tuple(_raw_sample(sample, names) for sample in self.samples), pipelines=skipped,
                       level=adapter.outputs)


def reference_key(adapter: Adapter, *options: Any) -> str:
    """Return a digest of weights, adapter class and `options`, which must have a stable ``repr``."""
    digest = hashlib.blake2b(f'{type(adapter).__qualname__} {options!r}'.encode(), digest_size=16)
    for name, tensor in adapter.model.state_dict().items():
        digest.update(f'{name} {tensor.dtype} {tuple(tensor.shape)}'.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data if tensor.numel() else b'')
    return digest.hexdigest()


def _raw_sample(sample: Sample, names: Sequence[str]) -> Sample:
    """Return the sample whose expected outputs are the raw ones of `names`; others that it has stay behind them."""
    floors = {key: floor for key, floor in sample.floors.items() if output_of(key) in sample.raw}
    expected = {name: sample.raw[name] for name in names}
    hidden = {name: output for name, output in sample.raw.items() if name not in expected}
    evidence, hidden_evidence = ({}, sample.raw_evidence) if hidden else (sample.raw_evidence, {})
    return Sample(sample.name, sample.image, expected, evidence, floors=floors, raw=hidden, raw_evidence=hidden_evidence,
                  inputs=sample.inputs)
