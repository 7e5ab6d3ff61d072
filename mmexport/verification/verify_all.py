"""Verify all artifacts of one run."""
from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ..adapters import Adapter
from ..artifact import Artifact
from ..backends.raw_outputs import raw_folder
from ..checker.samples import Sample
from ..utils.progress import RUNNING, Progress
from .checker_process import CheckerProcess
from .choices import following, moved
from .eager_run import typical_seconds
from .expected import recomputed_floors
from .verify import Verification, verify

RAW_SAMPLES = 4


@dataclass(frozen=True)
class ArtifactVerifier:
    """Verify all artifacts of one run, each in a new process; call it with the patches off."""

    adapter: Adapter
    tolerance: float
    device: torch.device
    step: Progress

    def verify(self, artifacts: Sequence[Artifact], samples: list[Sample], scratch: Path,
               checker: CheckerProcess | None) -> tuple[list[Verification], list[Sample]]:
        """Return the verdicts and their samples. Samples in which the file may follow a jump of eager get more noises.

        Args:
            checker: a process that waits for the first file, see `mmexport.verification.checker_process`.
        """
        if not samples:
            return [Verification(artifact.backend, None) for artifact in artifacts], samples
        samples = _with_few_raw(samples, self.adapter.choices)
        with self.step('Checking in a fresh process'):
            checks = [self._checked(artifact, samples, scratch, checker) for artifact in artifacts]
        closer = recomputed_floors(self.adapter, samples, checks, self.tolerance, self.device, self.step)
        if closer is None:
            return checks, samples
        with self.step('Checking again, with the floors of a closer look'):
            # It finds more jumps of eager's own and never fewer: what has passed passes.
            return [check if check.passed or check.died else self._checked(artifact, closer, scratch, first=check)
                    for artifact, check in zip(artifacts, checks, strict=True)], closer

    def _checked(self, artifact: Artifact, samples: Sequence[Sample], scratch: Path, checker: CheckerProcess | None = None,
                 first: Verification | None = None) -> Verification:
        """Return the verdict, with eager's time taken right after the file's own: a machine that others use is not as fast a minute later.

        Args:
            first: an earlier verdict on the same file; what passed there is not run again.
        """
        raw = raw_folder(artifact.folder)
        check = verify(artifact, samples, self.tolerance, self.device, scratch, checker, raw if raw.is_dir() else None, first)
        if first:
            passed_before = first.followed.keys() - first.failed_samples
            check = replace(check, followed={name: first.followed[name] for name in passed_before},
                            moved={name: first.moved[name] for name in passed_before})
        if check.choices:
            with self.step('Running eager with the choices of the file', RUNNING):
                followed = following(self.adapter, samples, check.choices, self.device)
            check = replace(verify(artifact, followed, self.tolerance, self.device, scratch, None, raw if raw.is_dir() else None, check),
                            followed={**check.followed, **{sample.name: sample for sample in followed if sample.name in check.choices}},
                            moved={**check.moved, **moved(self.adapter, samples, check.choices)})
        # They are long lists, and what they were needed for is done.
        check = replace(check, result=check.result and {key: value for key, value in check.result.items() if key != 'choices'})
        if check.seconds is None:
            return check
        return replace(check, eager_s=typical_seconds(self.adapter, samples[0].image.to(self.device)))


def _with_few_raw(samples: list[Sample], choices: Collection[str]) -> list[Sample]:
    """Keep the raw outputs of the `RAW_SAMPLES` smallest inputs, the traced one aside: a wrong weight shows on every input.

    The `choices` among them are kept of all: which ones the file made must be known of an input that fails.
    """
    by_size = sorted(samples[1:], key=lambda sample: sample.image.numel())
    chosen = {sample.name for sample in by_size[:RAW_SAMPLES]}
    return [sample if sample.name in chosen else replace(
        sample, raw={name: output for name, output in sample.raw.items() if name in choices},
        raw_evidence=sample.raw_evidence if choices else {}) for sample in samples]
