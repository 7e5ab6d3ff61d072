"""Compute what the unpatched eager model answers on every input, with inputs added until its decisions and branches vary."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..adapters import Adapter
from ..branches import Branches, BranchLog, Settled, Unclear, has_own_code, is_place, once_in, settle, sizes_that_leave
from ..branches import Run as BranchRun
from ..checker.compare import compare
from ..checker.samples import Sample
from ..errors import ConfigError, InputError, eager_in_words
from ..inputs.decisive import decisive_inputs, decisive_size, effort
from ..inputs.making import WINDOWS, Inputs
from ..inputs.real_image import PHOTOGRAPH
from ..inputs.shapes import SAME, TRACED, Plan, open_axes, ranges_of
from ..inputs.synthetic import PLAIN, picture, plain_picture
from ..utils.progress import Progress
from .expected import expect
from .memory import Memory
from .test_step import PipelineCheck, check_sample, check_slid, why_not_run

# Inputs this many times as large as the traced one are run once, without noise; and below this many pixels none is.
LARGE, ALWAYS_SMALL = 1.2, 100_000


@dataclass(frozen=True)
class Reference:
    """Hold what the file is compared with.

    Attributes:
        samples: inputs with eager's outputs, the traced one first.
        plan: shapes of the inputs that were planned, and why some were left out.
        branches: the Python branches of the model.
        pipelines: what ``test_step`` answered, compared with eager.
    """

    samples: list[Sample]
    plan: Plan
    branches: Branches = Branches()
    pipelines: tuple[PipelineCheck, ...] = ()


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
    memory: Memory
    step: Progress

    def compute(self, inputs: Inputs) -> Reference:
        samples, plan = self._run_eager(inputs)
        samples += self._decisive(plan, samples)
        settled = self._settle_branches(plan, samples, inputs)
        for name in settled.given_up:
            plan = plan.without(name, 'a size like it turns a branch that could not be checked; the ranges leave it out')
        samples = [sample for sample in samples if sample.name not in settled.given_up] + settled.samples
        pipelines, steps = self._test_steps(samples, inputs)
        branches = settled.branches
        return Reference(samples, plan, replace(branches, once=branches.once + once_in(steps, branches)), tuple(pipelines))

    def _expect(self, images: Mapping[str, Tensor], **options: Any) -> list[Sample]:
        noises = options.pop('noises', int(self.section['verify']['noises']))
        return expect(self.adapter, images, self.tolerance, noises, self.memory, **options)

    def _run_eager(self, inputs: Inputs) -> tuple[list[Sample], Plan]:
        """Run eager on every input; an input of ours that it refuses is left out, and the plan says so."""
        images, plan = inputs.images, inputs.plan
        noises = int(self.section['verify']['noises'])
        area = LARGE * inputs.traced.shape[2] * inputs.traced.shape[3]
        common: dict[str, Any] = dict(as_given=(*inputs.photographs, WINDOWS), once=[
            name for name, image in images.items() if name == PHOTOGRAPH
            or image.shape[0] * image.shape[2] * image.shape[3] > max(area, ALWAYS_SMALL)])
        with self.step(f'Running eager on {len(images)} inputs, and up to {noises} noises of each'):
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
        with self.step(f'Running eager on {len(images)} inputs on which more classes are decided'):
            return [sample for sample in self._expect(images, as_given=images) if self._decides_clearly(sample)]

    def _decides_clearly(self, sample: Sample) -> bool:
        """Return whether eager has clear margins on enough of `sample`; note it if not."""
        specs = [spec.as_dict() for spec in self.adapter.specs]
        rows = compare(specs, sample.expected, [sample.expected[str(spec['name'])] for spec in specs], sample.evidence, sample=sample.name,
                       stage='itself', floors=sample.floors, tolerance=self.tolerance)
        problem = next((row.problem for row in rows if row.problem), None)
        if problem:
            self.step.note(f'{sample.name}: not used: {problem}')
        return problem is None

    def _decided_classes(self, sample: Sample) -> frozenset[int]:
        image = self.adapter.preprocess(sample.image.to(self.device))
        with torch.no_grad():
            return self.adapter.decided(tuple(sample.raw[spec.name].to(self.device) for spec in self.adapter.raw_specs), image)

    def _settle_branches(self, plan: Plan, samples: Sequence[Sample], inputs: Inputs) -> Settled:
        """Find the Python branches of the model, and inputs that turn those which no input turned so far."""
        adapter, memory = self.adapter, self.memory
        shapes = {sample.name: _sides(sample.image) for sample in samples}
        log = BranchLog(self._run_once, adapter.channels, {name: memory.branches[name] for name in shapes}, shapes,
                        accepted=tuple(self.section['verify']['accept_branches']))
        # The user's own sizes and pictures are what he wants to use.
        own_sizes, batch = (self.section['verify'][option] for option in ('shapes', 'batch'))
        keep = [name for name, shape in shapes.items() if own_sizes is not None or name in (TRACED, SAME, WINDOWS)
                or (name in inputs.photographs and name != PHOTOGRAPH) or (batch is not None and shape[0] == int(batch))]

        def add(name: str, image: Tensor) -> tuple[Sample, BranchRun] | None:
            try:
                with eager_in_words({name: image}):
                    sample = self._expect({name: image}, as_given=PLAIN)[0]
            except InputError:  # Eager itself refuses it: a size, or a picture, that the model does not take.
                return None
            if not self._decides_clearly(sample):
                raise Unclear(name)
            return sample, memory.branches[name]

        self._check_accepted(log)
        with self.step('Looking for inputs that turn branches', 'making inputs'):
            def scene(shape: tuple[int, int, int], seed: int) -> Tensor:
                return picture((shape[0], adapter.channels, *shape[1:]), 50 + seed, adapter).to(self.device)

            def plain(kind: str, shape: tuple[int, int, int]) -> Tensor:
                return plain_picture((self.shape[0], adapter.channels, *shape[1:]), kind, adapter).to(self.device)

            ranges = ranges_of([tuple(sample.image.shape) for sample in samples], self._open_axes(plan))
            settled = settle(log, ranges, plan.rules.multiple_of, scene, plain, add, keep, memory.note)
            if memory.note is not None or not has_own_code(adapter.model):
                return settled
            smallest = min(samples, key=lambda sample: sample.image.numel()).image.to(self.device)
            branches = settled.branches
            leaving, error = sizes_that_leave(self._run_once, smallest, {*log.sites, *branches.escaped})
            note = branches.note or (error and f'sizes that leave Python were looked for up to where a trace without patches ends: {error}')
            return replace(settled, branches=replace(branches, escaped=branches.escaped + leaving, note=note))

    def _check_accepted(self, log: BranchLog) -> None:
        for given in log.accepted:
            if self.memory.note is None and not any(is_place(given, site) for site in log.sites):
                known = ', '.join(sorted({site.place for site in log.sites})) or 'none'
                raise ConfigError(f'--accept-branch {given} (export.verify.accept_branches) names no branch of this model; '
                                  f'those that it has: {known}')

    def _run_once(self, image: Tensor) -> None:
        """Run the model and its decisions, as `expect` does."""
        image = self.adapter.preprocess(image)
        raw, _ = self.adapter.watch(image)
        self.adapter.decide(raw, image)

    def _test_steps(self, samples: Sequence[Sample], inputs: Inputs) -> tuple[list[PipelineCheck], list[BranchRun]]:
        """Run OpenMMLab's own ``test_step`` on every sample, unpatched; returns the checks, and what its post-processing decided."""
        if reason := why_not_run(self.adapter):
            return [PipelineCheck(sample.name, skipped=reason) for sample in samples], []
        steps: list[BranchRun] = []
        with self.step("Running the model's own test_step"):
            checks = [check_sample(self.adapter, sample, self.device, inputs.photographs.get(sample.name), self.tolerance, steps)
                      for sample in samples if sample.name != WINDOWS]
            return checks + [check_slid(self.adapter, sample, inputs.slid, self.tolerance)
                             for sample in samples if sample.name == WINDOWS and inputs.slid is not None], steps

    def _open_axes(self, plan: Plan) -> tuple[str, ...]:
        return open_axes(self.section['inputs']['dynamic'] or (), plan.rules)


def _sides(image: Tensor) -> tuple[int, int, int]:
    """Batch, height and width."""
    return int(image.shape[0]), int(image.shape[2]), int(image.shape[3])
