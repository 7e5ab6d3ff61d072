"""What is held against the files of one run: eager's answers, and the config's own pipeline around one photograph."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from .adapters import Adapter
from .artifact import Artifact
from .backends import Backend
from .checking.reduced import FULL
from .checking.samples import Sample
from .expected import Memory, second_look
from .fresh import FreshProcess
from .photograph import Photograph
from .pipeline import PipelineCheck, check_pipeline
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
            checks = [verify(artifact, samples, self.tolerance, self.device, scratch, checker) for artifact in artifacts]
        closer = second_look(self.adapter, samples, checks, self.tolerance, self.device, self.memory)
        if closer is None:
            return checks, samples
        with self.step('Checking again, with the floors of a closer look'):
            return [verify(artifact, closer, self.tolerance, self.device, scratch) for artifact in artifacts], closer

    def pipelines(self, backends: Sequence[Backend], artifacts: Sequence[Artifact], checks: Sequence[Verification],
                  photograph: Photograph | None) -> Iterator[PipelineCheck]:
        """The config's own pipeline and ``test_step`` against each file; none without a photograph."""
        if photograph is None:
            return
        loaders = {backend.name: backend for backend in backends}
        for artifact, check in zip(artifacts, checks, strict=True):
            if check.passed is False:
                # It may not even load, and a file that is wrong needs no second witness.
                yield PipelineCheck(artifact.backend, skipped=f'{artifact.backend} failed its check')
                continue
            with self.step("Running the config's own test pipeline and test_step"):
                run = loaders[artifact.backend].load(artifact, self.device)
                yield check_pipeline(artifact.backend, self.adapter, run, photograph, artifact.manifest.get('precision', FULL))
