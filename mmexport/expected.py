"""What the unpatched eager model answers, how sure it is of it, and what the patched one answers; every network run is made once."""
from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .adapters import Adapter
from .checking.compare import compare, lost_of
from .checking.main import EAGER
from .checking.samples import Sample
from .checking.timing import typical
from .cliffs import Counted, clear_of_cliffs, noise
from .device import Audit
from .randomness import drawn_alike

if TYPE_CHECKING:
    from .verify import Verification

NOISE = 1e-6
# The sample that is somebody's picture, and stays as it is.
PHOTOGRAPH = 'photograph'
CLOSER = 9


class Memory:
    """Raw outputs by sample and circumstance, so that exporting ``raw`` and ``final`` of one model runs the network once.

    `patches` names what is on, of which two exporters may have different ones.
    """

    def __init__(self) -> None:
        self.patches = ''
        self.audit: Audit | None = None
        self.seen: dict[tuple[str, str, str], tuple[tuple[Tensor, ...], dict[str, Tensor]]] = {}
        self.undecided: dict[tuple[str, str, str], int] = {}

    def watch(self, adapter: Adapter, name: str, when: str, image: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        key = _key(name, when, self.patches, image)
        if key not in self.seen:
            with torch.no_grad(), drawn_alike(), Counted() if when == 'eager' else nullcontext() as counted:
                self.seen[key] = adapter.watch(image)
            self.undecided[key] = counted.undecided if counted else 0
        return self.seen[key]

    def close_calls(self, adapter: Adapter, name: str, image: Tensor) -> int:
        """How many comparisons inside eager are too close to call on `image`; see `cliffs`."""
        # Before the model may write into it.
        key = _key(name, 'eager', '', image)
        self.watch(adapter, name, 'eager', image)
        return self.undecided[key]


def _key(name: str, when: str, patches: str, image: Tensor) -> tuple[str, str, str]:
    return name, f'{when} {patches if when == "patched" else ""}', hashlib.sha256(image.cpu().numpy().tobytes()).hexdigest()


def expect(adapter: Adapter, images: Mapping[str, Tensor], tolerance: float, noises: int, memory: Memory) -> list[Sample]:
    """Run the unpatched eager model on every image, and up to `noises` times on the image with noise of 1e-6 of its scale.

    The share of units that the noise alone moves beyond the tolerance is the model's own floor: masked attention compares a sigmoid
    with 0.5, PointRend takes the top k, and both turn rounding into jumps that no export can avoid. Where the first noise moves nothing
    in any image, the others are left out: the model has no such jumps, or few, of which `second_look` takes care. A synthetic image
    on which the model has a few close calls is first moved off them.
    """
    samples = []
    for name, image in images.items():
        if name != PHOTOGRAPH:
            image = clear_of_cliffs(image, partial(_close_calls, adapter, memory, name))
        expected, evidence = _run(adapter, memory, name, 'eager', image)
        sample = Sample(name, image.cpu().clone(), expected, evidence)
        samples.append(replace(sample, floors=_floors(adapter, sample, image, range(noises)[:1], tolerance, memory)))
    if not any(model_floors(samples).values()):
        return samples
    return [replace(sample, floors=_floors(adapter, sample, sample.image.to(image.device), range(1, noises), tolerance, memory))
            for sample in samples]


def _close_calls(adapter: Adapter, memory: Memory, name: str, image: Tensor) -> int:
    return memory.close_calls(adapter, name, adapter.preprocess(image.clone()))


def second_look(adapter: Adapter, samples: Sequence[Sample], checks: Sequence[Verification], tolerance: float, device: torch.device,
                memory: Memory) -> list[Sample] | None:
    """More noises for samples in which a few units jumped, but eager, with the noises so far, did not; None where there are none.

    A jump that three noises miss, a fourth may show; if no noise makes eager itself jump there, the file is at fault. Errors that no
    floor would excuse (many units, the median, anything of 1e-2) do not lead here.
    """
    floors = model_floors(samples)
    suspects = {row.sample for check in checks for row in check.rows if row.stage == EAGER and not row.passed
                and floors.get(row.output, 0.0) == 0 and replace(row, floor=1e-9).passed}
    # What is off in every sample, in none of which the first noise moved anything, is no jump.
    if not suspects or len(samples) > 1 and suspects == {sample.name for sample in samples}:
        return None
    return [replace(sample, floors=_floors(adapter, sample, sample.image.to(device), range(100, 100 + CLOSER), tolerance, memory))
            if sample.name in suspects else sample for sample in samples]


def _floors(adapter: Adapter, sample: Sample, image: Tensor, trials: Iterable[int], tolerance: float, memory: Memory) -> dict[str, float]:
    """By output, the largest share of units that a noise moves beyond the tolerance; starts from the sample's own."""
    specs = [spec.as_dict() for spec in adapter.specs]
    floors = dict(sample.floors)
    for trial in trials:
        noisy, _ = _run(adapter, memory, sample.name, f'noise {trial}', image + noise(image, trial, NOISE))
        for row in compare(specs, sample.expected, list(noisy.values()), sample.evidence, sample=sample.name, stage='noise',
                           tolerance=tolerance):
            floors[row.output] = max(floors.get(row.output, 0.0), row.beyond or 0.0)
            if row.lost:
                floors[lost_of(row.output)] = max(floors.get(lost_of(row.output), 0.0), row.lost)
    return floors


def with_patched(adapter: Adapter, samples: Sequence[Sample], device: torch.device, memory: Memory) -> list[Sample]:
    """The same samples with what the patched eager model answers; call it inside `patched`."""
    return [replace(sample, patched=_run(adapter, memory, sample.name, 'patched', sample.image.to(device))[0]) for sample in samples]


def model_floors(samples: Sequence[Sample]) -> dict[str, float]:
    """By output, the largest floor that any sample showed."""
    floors: dict[str, float] = {}
    for sample in samples:
        for name, share in sample.floors.items():
            floors[name] = max(floors.get(name, 0.0), share)
    return floors


def typical_seconds(adapter: Adapter, image: Tensor) -> float:
    """The median time of a call of the eager model, unpatched, as the checker takes that of the file."""
    with torch.no_grad():
        return typical(lambda: adapter(image), image.device)


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
