"""Run the unpatched eager model on every input. Inputs are added until its decisions and branches vary."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..adapters import Adapter
from ..branches import BranchInputs, InsufficientMargin
from ..branches import Run as BranchRun
from ..checker.compare import unclear
from ..checker.samples import Sample
from ..compat.mmcv_ext import forget_called_kernels
from ..errors import InputError, eager_in_words
from ..inputs.decisive import decisive_inputs, decisive_size, effort
from ..inputs.making import WINDOWS, Inputs
from ..inputs.real_image import PHOTOGRAPH, Photograph
from ..inputs.shapes import SAME, TRACED, Plan, open_axes
from ..inputs.synthetic import PLAIN, picture, plain_picture
from ..utils.progress import RUNNING, Progress, counted
from .branch_search import BranchSearch
from .expected import expect
from .network_runs import NetworkRuns
from .reference import Reference
from .test_step import PipelineCheck, check_sample, check_slid, why_not_run

# Inputs this many times as large as the traced one are run once, without noise; and below this many pixels none is.
LARGE, ALWAYS_SMALL = 1.2, 100_000
# The output that counts rows, and the pictures on which a trained model finds none.
ROWS, EMPTY, EMPTY_NAME = 'num', ('blank', 'grey', 'dark'), 'nothing found'


@dataclass(frozen=True)
class ReferenceMaker:
    """Run the unpatched eager model on all inputs, and add inputs.

    Attributes:
        section: the config's ``export`` section.
        shape: (N, C, H, W) of the traced input.
        tolerance: on the share of an output's scale.
    """

    section: Mapping[str, Any]
    adapter: Adapter
    shape: Sequence[int]
    device: torch.device
    tolerance: float
    step: Progress
    runs: NetworkRuns = field(default_factory=NetworkRuns)

    def compute(self, inputs: Inputs) -> Reference:
        """Run the model on `inputs`, and on those that turn out to be needed."""
        forget_called_kernels()
        samples, plan = self._run_eager(inputs)
        samples += self._decisive(plan, samples) + self._without_rows(samples)
        search = BranchSearch(self.section, self.adapter, self.device, self.runs, self.step, self._sample_at, inputs.photographs,
                              plan.rules)
        settled = search.of_network(samples)
        samples, plan = _settled(settled, samples, plan)
        if reason := why_not_run(self.adapter):
            search.check_accepted()
            skipped = tuple(PipelineCheck(sample.name, skipped=reason) for sample in samples)
            return Reference(tuple(samples), plan, settled.branches, skipped, self.adapter.outputs)
        checks, runs = self._test_steps(samples, inputs)
        settled, more = search.of_post_processing(settled, samples, runs, self._check)
        samples, plan = _settled(settled, samples, plan)
        search.check_accepted()
        compared = tuple(check for check in checks + more if check.sample not in settled.given_up)
        return Reference(tuple(samples), plan, settled.branches, compared, self.adapter.outputs)

    def _expect(self, images: Mapping[str, Tensor], **options: Any) -> list[Sample]:
        noises = options.pop('noises', int(self.section['verify']['noises']))
        return expect(self.adapter, images, self.tolerance, noises, self.runs, **options)

    def _run_eager(self, inputs: Inputs) -> tuple[list[Sample], Plan]:
        """Run eager on every input; an input of ours that it refuses is left out, and the plan says so."""
        images, plan = inputs.images, inputs.plan
        noises = int(self.section['verify']['noises'])
        area = LARGE * inputs.traced.shape[2] * inputs.traced.shape[3]
        common: dict[str, Any] = dict(as_given=(*inputs.photographs, WINDOWS), once=[
            name for name, image in images.items() if name == PHOTOGRAPH
            or image.shape[0] * image.shape[2] * image.shape[3] > max(area, ALWAYS_SMALL)])
        with self.step(f'Running eager on {counted(len(images), "input")}, and up to {noises} noises of each', RUNNING):
            # The smallest first: whether recording branches changes the outputs is compared on the first one.
            for name, image in sorted(images.items(), key=lambda item: item[1].numel()):
                try:
                    with eager_in_words({name: image}):
                        self._expect({name: image}, noises=0, **common)
                except InputError as exc:
                    if name in (TRACED, SAME) or name in inputs.photographs or self.section['verify']['shapes'] is not None:
                        raise
                    plan = plan.without(name, str(exc))
            images = {name: image for name, image in images.items() if name not in plan.dropped}
            with eager_in_words(images):
                return self._expect(images, **common), plan

    def _decisive(self, plan: Plan, samples: Sequence[Sample]) -> list[Sample]:
        """Make inputs on which classes are decided that the others do not show."""
        adapter = self.adapter
        if adapter.outputs != 'final' or not adapter.class_count:
            return []
        height, width = decisive_size(self.shape, plan.rules)
        batch = 1 if 'batch' in self._open_axes(plan) else self.shape[0]
        count, steps = effort(height, width)
        origins = (picture((batch, adapter.channels, height, width), 100 + number, adapter).to(self.device) for number in range(count))
        with self.step('Making inputs on which more classes are decided', 'making inputs'), eager_in_words({}):
            classes = {label for sample in samples for label in self._decided_classes(sample)}
            attempts = decisive_inputs(adapter, origins, classes, count, steps)
        for number, attempt in enumerate(attempts, 1):
            if attempt.image is None and attempt.reason:
                self.step.note(f'decisive input {number}: not used: {attempt.reason}')
        images = {f'decisive {number}': attempt.image for number, attempt in enumerate(attempts, 1) if attempt.image is not None}
        if not images:
            return []
        with self.step(f'Running eager on {counted(len(images), "input")} on which more classes are decided', RUNNING):
            return [sample for sample in self._expect(images, as_given=images) if self._decides_clearly(sample)]

    def _without_rows(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return a plain picture on which eager finds nothing, if no sample is one and there is one."""
        counts = {count for sample in samples if ROWS in sample.expected for count in sample.expected[ROWS].tolist()}
        # Decoders of queries give as many rows of every picture.
        if len(counts) < 2 or 0 in counts:
            return []
        place = [spec.name for spec in self.adapter.specs].index(ROWS)
        for kind in EMPTY:
            image = plain_picture(self.shape, kind, self.adapter).to(self.device)
            try:
                with torch.no_grad(), eager_in_words({kind: image}):
                    found = bool(self.adapter.run_on(image)[place].any())
            except InputError:
                continue
            if not found:
                return self._expect({EMPTY_NAME: image}, as_given=(EMPTY_NAME,), noises=1)
        return []

    def _decides_clearly(self, sample: Sample) -> bool:
        """Return whether eager has clear margins on enough of `sample`; note it if not."""
        problem = unclear([spec.as_dict() for spec in self.adapter.specs], sample.expected, sample.evidence, sample.floors, self.tolerance)
        if problem:
            self.step.note(f'{sample.name}: not used: {problem}')
        return problem is None

    def _decided_classes(self, sample: Sample) -> frozenset[int]:
        image = self.adapter.network_inputs(sample.image.to(self.device))[0]
        with torch.no_grad():
            return self.adapter.decided(tuple(sample.raw[spec.name].to(self.device) for spec in self.adapter.raw_specs), image)

    def _sample_at(self, name: str, image: Tensor) -> Sample | None:
        """Return what eager answers on `image`; None where it refuses it.

        Raises:
            InsufficientMargin: eager lacks clear margins there.
        """
        try:
            with eager_in_words({name: image}):
                sample = self._expect({name: image}, as_given=PLAIN)[0]
        except InputError:
            return None
        if not self._decides_clearly(sample):
            raise InsufficientMargin(name)
        return sample

    def _test_steps(self, samples: Sequence[Sample], inputs: Inputs) -> tuple[list[PipelineCheck], dict[str, BranchRun]]:
        """Run OpenMMLab's own ``test_step`` on every sample, unpatched; returns the checks, and what it decided by sample."""
        runs: dict[str, BranchRun] = {}
        with self.step("Running the model's own test_step", RUNNING):
            checks = [self._check(sample, runs, inputs.photographs.get(sample.name)) for sample in samples if sample.name != WINDOWS]
            return checks + [check_slid(self.adapter, sample, inputs.slid, self.tolerance)
                             for sample in samples if sample.name == WINDOWS and inputs.slid is not None], runs

    def _check(self, sample: Sample, runs: dict[str, BranchRun], photograph: Photograph | None = None) -> PipelineCheck:
        """Compare a sample with ``test_step``; that it raises on another input than the traced one is a row, no error."""
        try:
            with eager_in_words({sample.name: sample.image}, hint=sample.name == TRACED):
                return check_sample(self.adapter, sample, self.device, photograph, self.tolerance, runs)
        except InputError as exc:
            if sample.name == TRACED:
                raise
            return PipelineCheck(sample.name, image=tuple(sample.image.shape), skipped=str(exc))

    def _open_axes(self, plan: Plan) -> tuple[str, ...]:
        return open_axes(self.section['inputs']['dynamic'] or (), plan.rules)


def _settled(settled: BranchInputs, samples: Sequence[Sample], plan: Plan) -> tuple[list[Sample], Plan]:
    """Add the inputs that turn branches. Those that the ranges exclude for a branch are left out."""
    for name in settled.given_up:
        plan = plan.without(name, 'a size like it turns a branch that could not be checked; the ranges leave it out')
    return [sample for sample in samples if sample.name not in settled.given_up] + settled.samples, plan
