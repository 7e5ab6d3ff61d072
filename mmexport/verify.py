"""Show that a lowered file is right: against the unpatched eager model, from disk, in another process."""
from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .adapters import Adapter
from .artifact import SAMPLES, Artifact
from .checking.compare import compare
from .checking.comparison import Comparison
from .checking.main import EAGER, vacuous_outputs, verdict
from .checking.samples import Sample, write_samples
from .checking.timing import typical
from .device import Audit
from .randomness import drawn_alike

NOISE = 1e-6
CLOSER = 9
MAX_SAMPLE_BYTES = 50_000_000


@dataclass(frozen=True)
class Verification:
    """What the child process found about one artifact; `passed` is None where it was not run."""

    backend: str
    found: Mapping[str, Any] | None

    @property
    def rows(self) -> list[Comparison]:
        return [Comparison.from_dict(row) for row in self.found['rows']] if self.found else []

    @property
    def reason(self) -> str | None:
        return None if self.found is None else verdict(dict(self.found))

    @property
    def passed(self) -> bool | None:
        return None if self.found is None else self.reason is None


class Memory:
    """Raw outputs by sample and circumstance, so that exporting ``raw`` and ``final`` of one model runs the network once.

    `patches` names what is on, of which two exporters may have different ones.
    """

    def __init__(self) -> None:
        self.patches = ''
        self.audit: Audit | None = None
        self.seen: dict[tuple[str, str, str], tuple[tuple[Tensor, ...], dict[str, Tensor]]] = {}

    def watch(self, adapter: Adapter, name: str, when: str, image: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        key = (name, f'{when} {self.patches if when == "patched" else ""}', hashlib.sha256(image.cpu().numpy().tobytes()).hexdigest())
        if key not in self.seen:
            with torch.no_grad(), drawn_alike():
                self.seen[key] = adapter.watch(image)
        return self.seen[key]


def expect(adapter: Adapter, images: Mapping[str, Tensor], tolerance: float, noises: int, memory: Memory) -> list[Sample]:
    """Run the unpatched eager model on every image, and up to `noises` times on the image with noise of 1e-6 of its scale.

    The share of units that the noise alone moves beyond the tolerance is the model's own floor: masked attention compares a sigmoid
    with 0.5, PointRend takes the top k, and both turn rounding into jumps that no export can avoid. Where the first noise moves nothing
    in any image, the others are left out: the model has no such jumps, or few, of which `second_look` takes care.
    """
    samples = []
    for name, image in images.items():
        expected, evidence = _run(adapter, memory, name, 'eager', image)
        sample = Sample(name, image.cpu().clone(), expected, evidence)
        samples.append(replace(sample, floors=_floors(adapter, sample, image, range(noises)[:1], tolerance, memory)))
    if not any(model_floors(samples).values()):
        return samples
    return [replace(sample, floors=_floors(adapter, sample, images[sample.name], range(1, noises), tolerance, memory))
            for sample in samples]


def second_look(adapter: Adapter, samples: Sequence[Sample], checks: Sequence[Verification], tolerance: float, device: torch.device,
                memory: Memory) -> list[Sample] | None:
    """More noises for samples in which a few units jumped, but eager, with the noises so far, did not; None where there are none.

    A jump that three noises miss, a fourth may show; if no noise makes eager itself jump there, the file is at fault. Errors that no
    floor would excuse (many units, the median, anything of 1e-2) do not lead here.
    """
    floors = model_floors(samples)
    suspects = {row.sample for check in checks for row in check.rows if row.stage == EAGER and not row.passed
                and floors.get(row.output, 0.0) == 0 and replace(row, floor=1e-9).passed}
    if not suspects:
        return None
    return [replace(sample, floors=_floors(adapter, sample, sample.image.to(device), range(100, 100 + CLOSER), tolerance, memory))
            if sample.name in suspects else sample for sample in samples]


def _floors(adapter: Adapter, sample: Sample, image: Tensor, trials: Iterable[int], tolerance: float, memory: Memory) -> dict[str, float]:
    """By output, the largest share of units that a noise moves beyond the tolerance; starts from the sample's own."""
    specs = [spec.as_dict() for spec in adapter.specs]
    floors = dict(sample.floors)
    for trial in trials:
        noisy, _ = _run(adapter, memory, sample.name, f'noise {trial}', image + _noise(image, trial))
        for row in compare(specs, sample.expected, list(noisy.values()), sample.evidence, sample=sample.name, stage='noise',
                           tolerance=tolerance):
            floors[row.output] = max(floors.get(row.output, 0.0), row.beyond or 0.0)
    return floors


def with_patched(adapter: Adapter, samples: Sequence[Sample], device: torch.device, memory: Memory) -> list[Sample]:
    """The same samples with what the patched eager model answers; call it inside `patched`."""
    return [replace(sample, patched=_run(adapter, memory, sample.name, 'patched', sample.image.to(device))[0]) for sample in samples]


def patched_rows(adapter: Adapter, samples: Sequence[Sample], tolerance: float) -> list[Comparison]:
    """Stage one of three: patched eager against unpatched, so that a wrong patch is told from a wrong lowering."""
    specs = [spec.as_dict() for spec in adapter.specs]
    floors = model_floors(samples)
    return [row for sample in samples for row in compare(
        specs, sample.expected, list(sample.patched.values()), sample.evidence, sample=sample.name, stage='patched vs eager',
        floors=floors, tolerance=tolerance)]


def model_floors(samples: Sequence[Sample]) -> dict[str, float]:
    """By output, the largest floor that any sample showed."""
    floors: dict[str, float] = {}
    for sample in samples:
        for name, share in sample.floors.items():
            floors[name] = max(floors.get(name, 0.0), share)
    return floors


def verify(artifact: Artifact, samples: Sequence[Sample], tolerance: float, device: torch.device, scratch: Path) -> Verification:
    """Check `artifact` on all `samples` in a fresh Python with torch and numpy alone.

    A file that cannot be loaded, or that takes the process with it, is one that is not shown to be right.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    everything, answer = scratch / 'all_samples.npz', scratch / 'found.json'
    write_samples(everything, samples, _extra(samples, tolerance))
    checker = Path(__file__).parent / 'checking'
    child = subprocess.run([sys.executable, str(checker), str(artifact.folder), '--samples', str(everything), '--device', str(device),
                            '--out', str(answer)], capture_output=True, text=True, check=False)
    everything.unlink()
    if not answer.is_file():
        problem = (f'the process that checks {artifact.file.name} died with code {child.returncode}: '
                   f'{(child.stderr.strip() or "(no message)").splitlines()[-1][:300]}')
        row = Comparison('(all)', '(all)', EAGER, 'count', tolerance, problem=problem)
        return Verification(artifact.backend, dict(stale=None, rows=[row.as_dict()], vacuous={}))
    found = json.loads(answer.read_text())
    answer.unlink()
    return Verification(artifact.backend, found)


def typical_seconds(adapter: Adapter, image: Tensor) -> float:
    """The median time of a call of the eager model, unpatched, as the checker takes that of the file."""
    with torch.no_grad():
        return typical(lambda: adapter(image), image.device)


def keep_samples(artifact: Artifact, samples: Sequence[Sample], tolerance: float) -> list[str]:
    """Write ``samples.npz`` beside the file, at most about 50 MB of it; returns the names of the samples kept.

    The first two are of one shape and kept together or not at all: they show that the outputs depend on the input. Where they are too
    large, what the export itself found about that is kept instead of them.
    """
    plain = [replace(sample, patched={}) for sample in samples]
    pair, others = plain[:2], sorted(plain[2:], key=lambda sample: sample.nbytes)
    kept: list[Sample] = []
    room = MAX_SAMPLE_BYTES
    for group in (pair, *([sample] for sample in others)):
        needed = sum(sample.nbytes for sample in group)
        if needed <= room:
            kept += group
            room -= needed
    names = [sample.name for sample in samples if any(sample.name == other.name for other in kept)]
    extra = _extra(samples, tolerance)
    if kept and kept[:2] != pair:
        extra['vacuous'] = vacuous_outputs(artifact.manifest, samples, tolerance)
    if kept:
        write_samples(artifact.folder / SAMPLES, [sample for sample in plain if sample.name in names], extra)
    return names


def _extra(samples: Sequence[Sample], tolerance: float) -> dict[str, Any]:
    return dict(tolerance=tolerance, floors=model_floors(samples), noise=NOISE)


def _run(adapter: Adapter, memory: Memory, name: str, when: str, image: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Outputs by name and the evidence, on the CPU."""
    with torch.no_grad():
        # A copy: a model that writes into its input must not change what the file is given.
        image = adapter.preprocess(image.clone())
        raw, seen = memory.watch(adapter, name, when, image)
        outputs = adapter.decide(raw, image)
        evidence = adapter.evidence(raw, image, seen) if adapter.outputs == 'final' and when == 'eager' else seen
    named = {spec.name: output.cpu() for spec, output in zip(adapter.specs, outputs, strict=True)}
    return named, {key: tensor.cpu() for key, tensor in evidence.items()}


def _noise(image: Tensor, trial: int) -> Tensor:
    generator = torch.Generator().manual_seed(trial)
    noise = torch.randn(image.shape, generator=generator).to(image.device)
    return noise * NOISE * image.abs().max()
