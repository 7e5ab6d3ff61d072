"""Compute the outputs of the unpatched eager model, and its noise floors."""
from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..adapters import Adapter
from ..checker.compare import OF_ONE_SAMPLE
from ..checker.comparison import EAGER
from ..checker.samples import Sample
from ..inputs.real_image import PHOTOGRAPH
from ..inputs.shapes import SAME
from ..utils.progress import RUNNING, Progress, counted
from .choices import choices_of
from .eager_run import inputs_by_name, run_eager
from .network_runs import NetworkRuns
from .noise_floor import NUDGE, floors_of, model_floors, move_off_thresholds, noise
from .own_rounding import a_little_off, roundings_of

if TYPE_CHECKING:
    from .verify import Verification

CLOSER = 9
# Seeds of noise that no floor is computed with.
OTHERS = 3000
# The largest share of the units of a sample that a jump may move: a query moves all pixels that it has a share in. Eager's own runs with
# noise tell whether it does jump.
JUMPING = 0.5
# A file rounds at every layer, and the noise is added to the input alone: what noise moves by half of the tolerance, a file may move
# beyond it.
CLOSER_TOLERANCE = 0.5
# A floor beyond this share is worth a few runs with other noise on small inputs (of so many numbers).
JUMPS, CALMER, SMALL = 0.01, 3, 3 * 100_000


def expect(adapter: Adapter, images: Mapping[str, Tensor], tolerance: float, noises: int, runs: NetworkRuns, *,
           as_given: Collection[str] = (PHOTOGRAPH,), once: Collection[str] = ()) -> list[Sample]:
    """Run the unpatched eager model on every image, and with noise on it. There are up to `noises` runs with noise of 1e-6 of its scale.

    The share of units that the noise alone moves beyond the tolerance is the model's own floor: masked attention compares a sigmoid
    with 0.5, PointRend takes the top k, and both turn rounding into jumps that no export can avoid. Where the first noise moves nothing
    in any image, the others are left out: the model has no such jumps, or few, which `recomputed_floors` handles. A synthetic image
    on which the model has a few close calls is first moved off them.

    Args:
        as_given: names of images that are not moved: the user's pictures, and inputs made for this model.
        once: names of large images, on which eager runs once and without noise.
    """
    # The floors of all samples count for each: another scene of the traced size would take as long again.
    noiseless = (*once, SAME)
    samples = []
    for name, image in images.items():
        moved = name not in as_given and name not in once
        if moved:
            image = move_off_thresholds(image, partial(_close_calls, adapter, runs, name))
        sample = _expected(adapter, name, image, runs)
        if name not in noiseless:
            sample = replace(sample, floors=_floors(adapter, sample, image, range(noises)[:1], tolerance, runs))
        if moved and _jumps(sample) and image.numel() <= SMALL:
            sample = _stable_sample(adapter, sample, image, range(noises)[:1], tolerance, runs)
        samples.append(sample)
    if not any(any(sample.floors.values()) for sample in samples):
        return samples
    device = next(iter(images.values())).device
    return [sample if sample.name in noiseless else
            replace(sample, floors=_floors(adapter, sample, sample.image.to(device), range(1, noises), tolerance, runs))
            for sample in samples]


def _expected(adapter: Adapter, name: str, image: Tensor, runs: NetworkRuns) -> Sample:
    run = run_eager(adapter, runs, name, 'eager', image)
    return Sample(name, image.cpu().clone(), run.outputs, run.evidence, raw=run.raw, raw_evidence=run.raw_evidence,
                  inputs=inputs_by_name(adapter, image))


def _jumps(sample: Sample) -> bool:
    return max(sample.floors.values(), default=0.0) > JUMPS


def _stable_sample(adapter: Adapter, sample: Sample, image: Tensor, trials: Iterable[int], tolerance: float, runs: NetworkRuns) -> Sample:
    """Return the sample of a slightly noisy `image` on which eager does not jump. It is `sample` if none is found.

    A floor counts for all samples, so one small input at a threshold that `move_off_thresholds` does not see would excuse much in all.
    """
    for trial in range(CALMER):
        nudged = image + noise(image, OTHERS + trial, NUDGE)
        nudged_sample = _expected(adapter, sample.name, nudged, runs)
        nudged_sample = replace(nudged_sample, floors=_floors(adapter, nudged_sample, nudged, trials, tolerance, runs))
        if not _jumps(nudged_sample):
            return nudged_sample
    # Of the last run, branches were recorded of another image.
    _expected(adapter, sample.name, image, runs)
    return sample


def _floors(adapter: Adapter, sample: Sample, image: Tensor, trials: Iterable[int], tolerance: float, runs: NetworkRuns,
            share: float = 1.0) -> dict[str, float]:
    # The file's choices are followed, too: what noise makes eager choose otherwise excuses nothing, but in a file that does not give them.
    with adapter.following(choices_of(adapter, sample, free=False)):
        return floors_of(adapter, sample, image, trials, tolerance, partial(run_eager, adapter, runs, sample.name), share)


def _close_calls(adapter: Adapter, runs: NetworkRuns, name: str, image: Tensor) -> int:
    return runs.count_near_thresholds(adapter, name, *adapter.network_inputs(image.clone()))


def recomputed_floors(adapter: Adapter, samples: Sequence[Sample], checks: Sequence[Verification], tolerance: float, device: torch.device,
                step: Progress) -> list[Sample] | None:
    """Compute floors with more noises for samples in which only the file jumps. Where a file is a little off, eager's rounding is
    measured. None if there are none of either.

    A jump that three noises miss, a fourth may show; if no noise makes eager itself jump there, the file is at fault. Errors that no
    floor would excuse (most units, the median, anything of 1e-2) do not lead here.
    """
    jumping, off = _jumping(samples, checks), a_little_off(row for check in checks for row in check.rows)
    if not jumping and not off:
        return None
    closer = list(samples)
    if off:
        with step(f'Running eager in float64, and on other kernels, on {counted(len(off), "input")}', RUNNING):
            closer = [replace(sample, floors={**sample.floors, **roundings_of(adapter, sample, device, tolerance)})
                      if sample.name in off else sample for sample in closer]
    if jumping:
        trials, runs = range(100, 100 + CLOSER), NetworkRuns()
        with step(f'Running eager on {counted(len(jumping), "input")} with {CLOSER} more noises', RUNNING):
            closer = [replace(sample, floors=_floors(adapter, sample, sample.image.to(device), trials, tolerance, runs, CLOSER_TOLERANCE))
                      if sample.name in jumping else sample for sample in closer]
    return closer


def _jumping(samples: Sequence[Sample], checks: Sequence[Verification]) -> set[str]:
    """Return the samples whose errors a jump of the model may explain. An error in every sample is none."""
    floors = model_floors(samples)
    suspects = {row.sample for check in checks if check.floors_count for row in check.rows if row.stage == EAGER and not row.passed
                and not row.problem and replace(row, floor=max(floors.get(row.output, 0.0), JUMPING), median_floor=1.0,
                                                lost_floor=JUMPING if row.output in OF_ONE_SAMPLE else row.lost_floor).passed}
    return set() if len(samples) > 1 and suspects == {sample.name for sample in samples} else suspects
