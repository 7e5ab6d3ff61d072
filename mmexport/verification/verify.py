"""Verify a lowered file against the unpatched eager model, from disk, in another process."""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ..artifact import SAMPLES, Artifact
from ..backends.building import backend_class
from ..checker.check import verdict
from ..checker.comparison import ALL, COUNT, EAGER, Comparison
from ..checker.judging import judge_samples
from ..checker.kinds import other_kinds
from ..checker.samples import Sample, write_samples
from .checker_process import CheckerProcess, waiting
from .noise_floor import NOISE, model_floors

MAX_SAMPLE_BYTES = 50_000_000


@dataclass(frozen=True)
class Verification:
    """Hold the result of the child process for one artifact; `passed` is None if it was not run.

    Attributes:
        eager_s: the median time of a call of the unpatched eager model on the same input, in seconds.
        followed: samples, by name, whose outputs eager computed from this file's own choices.
        moved: how many of eager's own choices these are not, by sample.
    """

    backend: str
    result: Mapping[str, Any] | None
    eager_s: float | None = None
    followed: Mapping[str, Sample] = field(default_factory=dict)
    moved: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> list[Comparison]:
        return [Comparison.from_dict(row) for row in self.result['rows']] if self.result else []

    @property
    def reason(self) -> str | None:
        return None if self.result is None else verdict(dict(self.result))

    @property
    def failed_samples(self) -> set[str]:
        """Return the samples on which the file did not agree with eager."""
        return {row.sample for row in self.rows if row.stage == EAGER and not row.passed}

    @property
    def choices(self) -> dict[str, Any]:
        """Return the choices of a file that differs, by sample and output. Only right ones that are not eager's own."""
        chosen = self.result.get('choices', {}) if self.result else {}
        return {name: choices for name, choices in chosen.items() if name in self.failed_samples}

    @property
    def floors_count(self) -> bool:
        """Return whether floors apply to this file. They do not if its choices are known, because eager follows them then."""
        return bool(self.result and self.result.get('floors_count', True))

    def own(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return `samples` as this file was compared with them."""
        return [self.followed.get(sample.name, sample) for sample in samples]

    @property
    def seconds(self) -> float | None:
        """Return the median time of a call of the file; None if it did not run."""
        return self.result.get('p50_s') if self.result else None

    @property
    def over_eager(self) -> float | None:
        return self.seconds / self.eager_s if self.seconds and self.eager_s else None

    @property
    def died(self) -> bool:
        """Return whether the file ended the checker process."""
        return bool(self.result and self.result.get('died'))

    @property
    def passed(self) -> bool | None:
        return None if self.result is None else self.reason is None


def verify(artifact: Artifact, samples: Sequence[Sample], tolerance: float, device: torch.device, scratch: Path,
           started: CheckerProcess | None = None, raw: Path | None = None, first: Verification | None = None) -> Verification:
    """Check `artifact` on all `samples` in a new Python process with torch and numpy alone.

    A file that cannot be loaded, or that crashes the process, does not pass.

    Args:
        raw: a folder with the graph that the file was cut from, for the network's own outputs.
        first: an earlier verdict on the same file, with lower floors: the file runs on the traced sample and on those that failed, and the
            rows of the others are taken from it.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    runner = backend_class(artifact.backend).runner_file()
    samples_file, result_file = scratch / 'all_samples.npz', scratch / 'answers.json'
    failed = first.failed_samples if first else {sample.name for sample in samples}
    repeated = [sample for sample in samples if sample is samples[0] or sample.name in failed]
    write_samples(samples_file, repeated, {**_extra(samples, tolerance), 'followed': first is not None})
    arguments = [str(artifact.folder), '--samples', str(samples_file), '--device', str(device), '--out', str(result_file), '--trust',
             *(['--raw', str(raw)] if raw else []), '--runner', str(runner),
             *(['--kind', *(f'{name}={file}' for name, file in other_kinds().items())] if other_kinds() else [])]
    ready = started if started and started.idle and started.backend == artifact.backend else None
    with nullcontext(ready) if ready else waiting(artifact.backend, scratch, runner) as process:
        code, stderr = process.run(arguments)
    samples_file.unlink()
    if not result_file.is_file():
        # A negative code is a signal: a crash, or the system's out-of-memory killer.
        problem = (f"the process that checks {artifact.file.name} {'died' if code < 0 else 'ended'} with code {code}: "
                   f'{(stderr.strip() or "(no message)").splitlines()[-1][:300]}')
        row = Comparison(ALL, ALL, EAGER, COUNT, tolerance, problem=problem)
        return Verification(artifact.backend, dict(stale=None, rows=[row.as_dict()], vacuous={}, little_change={}, classes=None,
                                                   died=code < 0))
    result = json.loads(result_file.read_text())
    result_file.unlink()
    if first and not result['stale']:
        names = {sample.name for sample in repeated}
        earlier_rows = [row.as_dict() for row in first.rows if row.sample not in names]
        order = {sample.name: number for number, sample in enumerate(samples)}
        rows = sorted(result['rows'] + earlier_rows, key=lambda row: order.get(row['sample'], len(order)))
        # Vacuity is a matter of all samples.
        result.update(judge_samples(artifact.manifest, samples, _extra(samples, tolerance)), rows=rows)
    return Verification(artifact.backend, result)


def keep_samples(artifact: Artifact, samples: Sequence[Sample], tolerance: float) -> list[str]:
    """Write ``samples.npz`` beside the file, and return the names of its samples. It has at most about 50 MB.

    The first two are of one shape and kept together or not at all: they show that the outputs depend on the input. Where they are too
    large, what the export itself found about that is kept instead of them.
    """
    plain = [replace(sample, patched={}, raw={}, raw_evidence={}) for sample in samples]
    pair, others = plain[:2], sorted(plain[2:], key=lambda sample: sample.nbytes)
    chosen: list[Sample] = []
    room = MAX_SAMPLE_BYTES
    for group in (pair, *([sample] for sample in others)):
        needed = sum(sample.nbytes for sample in group)
        if needed <= room:
            chosen += group
            room -= needed
    names = [sample.name for sample in samples if any(sample.name == other.name for other in chosen)]
    extra = _extra(samples, tolerance)
    if chosen and chosen[:2] != pair:
        extra['judged'] = judge_samples(artifact.manifest, samples, extra)
    if chosen:
        write_samples(artifact.folder / SAMPLES, [sample for sample in plain if sample.name in names], extra)
    return names


def _extra(samples: Sequence[Sample], tolerance: float) -> dict[str, Any]:
    return dict(tolerance=tolerance, floors=model_floors(samples), noise=NOISE)
