"""What is held against the files of one run: eager's answers, and the config's own pipeline around one photograph."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from .adapters import Adapter
from .artifact import Artifact
from .backends import Backend
from .checking.reduced import FULL
from .checking.samples import Sample
from .expected import Memory, second_look, typical_seconds
from .fresh import FreshProcess
from .photograph import Photograph
from .pipeline import PipelineCheck, check_pipeline, why_not_run
from .progress import Progress
from .verify import Verification, verify


@dataclass(frozen=True)
class Proof:
    """Checks files one after another, each in a fresh process; call it with the patches off."""

    adapter: Adapter
    tolerance: float
    device: torch.device
    memory: Memory
    step: Progress

    def verify(self, artifacts: Sequence[Artifact], samples: list[Sample], scratch: Path,
               checker: FreshProcess | None) -> tuple[list[Verification], list[Sample]]:
        """The verdicts, and the samples that they rest on: what lies between two answers of eager itself is looked at more closely.

        Args:
            checker: a process that waits for the first file, see `mmexport.fresh`.
        """
        if not samples:
            return [Verification(artifact.backend, None) for artifact in artifacts], samples
        with self.step('Checking in a fresh process'):
            checks = [self._checked(artifact, samples, scratch, checker) for artifact in artifacts]
        closer = second_look(self.adapter, samples, checks, self.tolerance, self.device, self.memory)
        if closer is None:
            return checks, samples
        with self.step('Checking again, with the floors of a closer look'):
            # It finds more jumps of eager's own and never fewer: what has passed passes.
            return [check if check.passed else self._checked(artifact, closer, scratch)
                    for artifact, check in zip(artifacts, checks, strict=True)], closer

    def _checked(self, artifact: Artifact, samples: Sequence[Sample], scratch: Path, checker: FreshProcess | None = None) -> Verification:
        """The verdict, and eager's time taken right after the file's own: a machine that others use is not as fast a minute later."""
        check = verify(artifact, samples, self.tolerance, self.device, scratch, checker)
        if check.seconds is None:
            return check
        return replace(check, eager_s=typical_seconds(self.adapter, samples[0].image.to(self.device)))

    def pipelines(self, backends: Sequence[Backend], artifacts: Sequence[Artifact], checks: Sequence[Verification],
                  photograph: Photograph | None) -> Iterator[PipelineCheck]:
        """The config's own pipeline and ``test_step`` against each file; none without a photograph."""
        if photograph is None:
            return
        loaders = {backend.name: backend for backend in backends}
        for artifact, check in zip(artifacts, checks, strict=True):
            # A file that failed may not even load, and needs no second witness.
            skipped = f'{artifact.backend} failed its check' if check.passed is False else why_not_run(self.adapter, photograph)
            if skipped:
                yield PipelineCheck(artifact.backend, skipped=skipped)
                continue
            with self.step("Running the config's own test pipeline and test_step"):
                run = loaders[artifact.backend].load(artifact, self.device)
                yield check_pipeline(artifact.backend, self.adapter, run, photograph, artifact.manifest.get('precision', FULL))
