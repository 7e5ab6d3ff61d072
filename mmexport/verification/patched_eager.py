"""Run the patched eager model, to tell a wrong patch from a wrong lowering."""
from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from ..adapters import Adapter
from ..checker.compare import Comparison, compare, own_floors
from ..checker.samples import Sample
from ..inputs.shapes import SAME
from ..utils.progress import RUNNING, Progress
from .choices import choices_of
from .eager_run import run_eager
from .network_runs import NetworkRuns
from .noise_floor import model_floors

if TYPE_CHECKING:
    from .verify import Verification


@dataclass(frozen=True)
class PatchedEager:
    """Run a model with the patches of one export.

    Attributes:
        patched: makes the context in which they are applied.
        runs: of the network; decisions and raw outputs of one input are computed from one run.
    """

    patched: Callable[[], AbstractContextManager[Any]]
    device: torch.device
    step: Progress
    runs: NetworkRuns = field(default_factory=NetworkRuns)

    def run(self, adapter: Adapter, samples: list[Sample]) -> list[Sample]:
        """Add the outputs of patched eager to small samples; call it where the patches are applied."""
        if not samples:
            return samples
        with self.step('Running patched eager', RUNNING):
            return with_patched(adapter, samples, self.device, self.runs)

    def run_where_failed(self, adapter: Adapter, samples: list[Sample], checks: Sequence[Verification]) -> list[Sample]:
        """Add the outputs of patched eager on inputs on which a file is wrong."""
        failed = {name for check in checks for name in check.failed_samples}
        if all(sample.patched for sample in samples if sample.name in failed):
            return samples
        with self.step('Running patched eager where a file is wrong', RUNNING), self.patched():
            return with_patched(adapter, samples, self.device, self.runs, failed)


def with_patched(adapter: Adapter, samples: Sequence[Sample], device: torch.device, runs: NetworkRuns,
                 names: Collection[str] | None = None) -> list[Sample]:
    """Add the outputs of the patched eager model to the samples `names`; call it inside `patched`.

    Args:
        names: None for all but large ones and the second scene of the traced size: patched outputs are needed only to locate a fault.
    """
    if names is None:
        limit = samples[0].image.numel()
        names = {sample.name for sample in samples if sample.name != SAME and sample.image.numel() <= limit}
    return [_with_patched(adapter, sample, device, runs) if sample.name in names and not sample.patched else sample for sample in samples]


def _with_patched(adapter: Adapter, sample: Sample, device: torch.device, runs: NetworkRuns) -> Sample:
    with adapter.following(choices_of(adapter, sample)):
        return replace(sample, patched=run_eager(adapter, runs, sample.name, 'patched', sample.image.to(device)).outputs)


def patched_rows(adapter: Adapter, samples: Sequence[Sample], tolerance: float) -> list[Comparison]:
    """Compare patched eager with unpatched, to tell a wrong patch from a wrong lowering."""
    specs = [spec.as_dict() for spec in adapter.specs]
    floors = model_floors(samples)
    return [row for sample in samples if sample.patched for row in compare(
        specs, sample.expected, list(sample.patched.values()), sample.evidence, sample=sample.name, stage='patched vs eager',
        floors={**floors, **own_floors(sample.floors)}, tolerance=tolerance)]
