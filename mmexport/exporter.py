"""The line: config and checkpoint in, a lowered file and the proof that it is right out."""
from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .adapters import Adapter, build_adapter
from .adapters.base import InputGuard
from .artifact import Artifact, check_work_dir, staging_dir
from .backends import Backend, build_backend
from .branches import Branches, BranchLog, Settled, Unclear, is_place, once_in, settle
from .branches import Run as BranchRun
from .checking.compare import compare
from .checking.samples import Sample
from .checkpoint import LoadReport
from .config import export_section
from .delivery import FAILED, deliver
from .device import Audit, mended
from .device.outside import stop_gradients
from .diagnosis import Consultation
from .errors import ConfigError, InputError, MMExportError, last_line
from .expected import Memory, expect, with_patched
from .fresh import waiting
from .garbage import few_collections
from .inputs.decisive import COUNT, SIDE, decisive_inputs
from .inputs.real_image import PACKAGED, PHOTOGRAPH, Photograph, picture_files, pipeline_scale, read_photograph
from .inputs.shapes import SAME, TRACED, Plan, plan_shapes, ranges_of, traced_shape, within_budget
from .inputs.size_rules import SizeRules, find_size_rules
from .inputs.synthetic import PLAIN, picture, plain_picture, scenes
from .lowering import lower_all, none_was_made
from .manifest import describe
from .model import CheckpointOptions, check_device, load_model, versions
from .patching import Applied, Environment, patched
from .pipeline import PipelineCheck, check_sample, check_slid, why_not_run, windows_of
from .precision import exact_arithmetic
from .progress import Progress
from .proof import Proof
from .report import Report
from .screening import eager_in_words, screened, stop_where_it_would_fail
from .verify import patched_rows

if TYPE_CHECKING:
    from mmengine.config import Config

# Inputs this many times as large as the traced one are run once, without noise; and below this many pixels none is.
LARGE, ALWAYS_SMALL = 1.2, 100_000
# The windows of a picture over which a model slides, as one batch.
WINDOWS = 'windows'


class Exporter:
    """Exports one model and shows that the file is right.

    Args:
        cfg: any OpenMMLab config; its ``export`` section is optional.
        checkpoint: a file, or None for the weights that the model is built with (or `model` has).
        work_dir: gets a folder for each backend, with the report in it; what failed lies under ``failed/`` instead.
        device: where the model runs, is lowered and is checked.
        options: how the checkpoint is read.
        checking: False only lowers; whatever was not run then reads None in the report.
        samples: keep inputs and expected outputs beside the file.
        model: a built and loaded model to use instead of building one, and `fit` how the checkpoint fitted it. Its parameters no longer
            require gradients afterwards.
        memory: share it between two exporters of the same model and inputs, and the network runs once for both.
        diagnose: after a failure, look for the smallest module that fails; see `mmexport.diagnosis`.
        more_pictures: files to check besides those of ``export.inputs.image``; one that cannot be read is a note, no error.
        fix: mend, for the time of the export, what the device audit finds and can mend; else findings stop an export for CUDA.

    Raises:
        MMExportError: one of `mmexport.errors`; see there for which.
    """

    def __init__(self, cfg: Config, checkpoint: str | None = None, work_dir: str | Path = 'work_dirs/export', device: str = 'cpu', *,
                 options: CheckpointOptions | None = None, checking: bool = True, samples: bool = True, quiet: bool = True,
                 model: nn.Module | None = None, fit: LoadReport | None = None, memory: Memory | None = None, fix: bool = False,
                 diagnose: bool = True, more_pictures: Sequence[str] = ()) -> None:
        self.cfg, self.checkpoint, self.work_dir = cfg, checkpoint, Path(work_dir)
        self.section = export_section(cfg)
        self.device = check_device(device)
        self.options, self.checking, self.samples, self.model = options, checking, samples, model
        self.fit, self.memory, self.fix, self.more_pictures = fit, memory or Memory(), fix, more_pictures
        backends = self.section['backends']
        self.backends = [build_backend(spec) for spec in (backends if isinstance(backends, (list, tuple)) else [backends])]
        names = [backend.name for backend in self.backends]
        if len(set(names)) < len(names):
            raise ConfigError(f'export.backends names one backend twice: {", ".join(names)}')
        self.tolerance = float(self.section['verify']['tolerance']['scale'])
        self.step = Progress(quiet)
        self.consultation = Consultation(cfg, self.section['inputs']['dynamic'] or (), self.tolerance, self.work_dir / FAILED,
                                         self._patched, self.step, diagnose)

    @classmethod
    def from_cfg(cls, cfg: Config | dict[str, Any] | str | Path, checkpoint: str | None = None, **kwargs: Any) -> Exporter:
        """From a Config, a dict, or the path of a config file; the rest as in the constructor."""
        from mmengine.config import Config

        from .config import load_config
        if isinstance(cfg, (str, Path)):
            cfg = load_config(cfg)
        return cls(cfg if isinstance(cfg, Config) else Config(cfg), checkpoint, **kwargs)

    def run(self) -> Report:
        with exact_arithmetic():
            return self._run()

    def _run(self) -> Report:
        self.consultation.found.clear()
        # Wrong options are refused before minutes go into the model.
        check_work_dir(self.work_dir)
        picture_files(self.section['inputs']['image'])
        plan_shapes(self.shape, self.section, SizeRules())
        self.model, self.fit = self._load()
        self.memory.bind(self.model)
        adapter = self.adapter = self._adapt(self.model)
        plan, images, photographs = self._inputs(adapter)
        audit = self._audit(adapter, images[TRACED])
        self.consultation.dynamic, self.consultation.multiple = self._open_axes(plan), plan.rules.multiple_of
        with self._mended(adapter, audit) as done:
            adapter.preprocess.check_against(self.model)
            return self._export(adapter, plan, images, photographs, replace(audit, mended=tuple(done)))

    def _export(self, adapter: Adapter, plan: Plan, images: dict[str, Tensor], photographs: dict[str, Photograph],
                audit: Audit) -> Report:
        samples, plan = self._expect(adapter, plan, images, photographs)
        samples += self._decisive(adapter, plan, samples)
        found = self._branches(adapter, plan, samples, photographs)
        branches, samples = found.branches, [sample for sample in samples if sample.name not in found.given_up] + found.samples
        for name in found.given_up:
            plan = plan.without(name, 'a size like it turns a branch that could not be checked; the ranges leave it out')
        adapter.guard = self._guard(plan, samples)
        pipelines, steps = self._test_steps(adapter, samples, photographs)
        branches = replace(branches, once=branches.once + once_in(steps, branches))
        with staging_dir(self.work_dir) as staging, ExitStack() as until_checked:
            with self._patched() as applied:
                self.memory.patches = repr(self.section['patches'])
                samples = self._run_patched(adapter, samples)
                # Not before the network has run: here one core is idle.
                checker = until_checked.enter_context(waiting(self.backends[0].name, staging / 'scratch')) if samples else None
                artifacts, failures = lower_all(self.backends, partial(self._lower, staging, applied, branches), adapter, images[TRACED],
                                                self.consultation)
            proof = Proof(adapter, self.tolerance, self.device, self.memory, self.step)
            checks, samples = proof.verify(artifacts, samples, staging / 'scratch', checker)
            self.consultation.on_parity(self.backends, adapter, samples, checks)
            report = Report(
                config=str(self.cfg.filename), checkpoint=self.checkpoint, device=str(self.device), task=adapter.task,
                outputs=adapter.outputs, fit=self.fit, applied=tuple(applied), artifacts=tuple(artifacts),
                stages=tuple(self._stages(adapter, samples)), checks=tuple(checks),
                pipelines=tuple(pipelines), floors={s.name: dict(s.floors) for s in samples},
                failures={name: str(error) for name, error in failures.items()},
                diagnoses=tuple(self.consultation.found), audit=audit, tolerance=self.tolerance,
                seconds=dict(self.step.seconds), versions=versions(), work_dir=self.work_dir, plan=plan,
                inputs={sample.name: tuple(sample.image.shape) for sample in samples}, notes=tuple(self.step.notes),
                seconds_by_kind=dict(self.step.by_kind), branches=branches)
            report = deliver(report, samples, keep=self.samples and self.checking)
            if not artifacts:
                raise none_was_made(failures, self.consultation)
            return report

    def _load(self) -> tuple[nn.Module, LoadReport | None]:
        if self.model is not None:
            return self.model.to(self.device).eval(), self.fit
        with self.step('Building the model and reading the checkpoint', 'set-up'), few_collections():
            return load_model(self.cfg, self.checkpoint, self.device, self.options)

    def _adapt(self, model: nn.Module) -> Adapter:
        stop_gradients(model)
        adapter = build_adapter(model, self.section['task'], self.section['outputs'], bool(self.section['inputs']['normalize']))
        # Wrong names would go into the manifest: an error before minutes go into a file.
        _ = adapter.classes
        return adapter.to(self.device)

    def _inputs(self, adapter: Adapter) -> tuple[Plan, dict[str, Tensor], dict[str, Photograph]]:
        """Choose the inputs: sizes that eager takes, synthetic scenes of those, and photographs."""
        dynamic = self.section['inputs']['dynamic'] or ()
        adapter.guard = InputGuard(self.shape, dynamic)
        with self.step('Finding out which sizes eager takes', 'making inputs'):
            rules = self._size_rules(adapter)
        traced = picture(self.shape, 0, adapter).to(self.device)
        photographs = self._photographs(adapter, traced, rules) if self.checking else {}
        known = [_sides(shot.image)[1:] for shot in photographs.values()]
        decisive = [_decisive_size(self.shape, rules)] if self.section['outputs'] == 'final' and adapter.class_count else []
        plan = plan_shapes(self.shape, self.section, rules, known + decisive)
        slid = {}
        if self._slid_size(adapter, dynamic):
            slid = {WINDOWS: windows_of(self._slid_picture(adapter), adapter.notes()['sliding'])}
        pictures = {name: shot.image for name, shot in photographs.items()}
        return plan, {**scenes(plan.shapes, adapter, self.device), **slid, **pictures}, photographs

    def _slid_size(self, adapter: Adapter, dynamic: Sequence[str]) -> tuple[int, int] | None:
        """Height and width of a picture that a sliding model goes over in some windows; None where the file gives no logits of windows."""
        sliding = adapter.notes().get('sliding')
        if not sliding or adapter.outputs != 'final' or 'batch' not in dynamic or not self.checking:
            return None
        height, width = (window + stride // 2 for window, stride in zip(sliding['window'], sliding['stride'], strict=True))
        return height, width

    def _slid_picture(self, adapter: Adapter) -> Tensor:
        size = self._slid_size(adapter, ('batch',))
        assert size is not None
        return picture((1, adapter.channels, *size), 200, adapter).to(self.device)

    def _size_rules(self, adapter: Adapter) -> SizeRules:
        if not {'height', 'width'} & set(self.section['inputs']['dynamic'] or ()):
            return SizeRules(fixed=True)

        def accepts(height: int, width: int) -> str | None:
            image = picture((1, adapter.channels, height, width), 0, adapter).to(self.device)
            try:
                with torch.no_grad():
                    adapter.raw(adapter.preprocess(image))
            except MMExportError:  # An op that is missing here is no rule about sizes.
                raise
            except Exception as exc:  # Upstream may raise anything; it is kept as the reason of the rule.
                return f'{height}x{width}: {type(exc).__name__}: {last_line(exc)}'
            return None

        traced = self.shape[2:]
        with eager_in_words({TRACED: torch.empty(self.shape)}, hint=False):
            if refusal := accepts(*traced):
                with suppress(InputError):  # Two dtypes that meet are no question of size, and the audit names the line.
                    self._audit(adapter, picture(self.shape, 0, adapter).to(self.device))
                other = find_size_rules(accepts, tuple(64 * -(-side // 64) for side in traced))
                raise InputError(f'the unpatched eager model does not take the traced size: {refusal}. ' + (
                    f'It takes multiples of {other.multiple_of}: --shape {other.up(traced[0])} {other.up(traced[1])}'
                    if not other.fixed else 'Give the size that it was made for: --shape H W'))
        return find_size_rules(accepts, traced)

    def _photographs(self, adapter: Adapter, traced: Tensor, rules: SizeRules) -> dict[str, Photograph]:
        """The packaged photograph, and the user's own pictures."""
        found = {}
        common: dict[str, Any] = dict(adapter=adapter, device=self.device, like=traced, rules=rules)
        if adapter.channels == 3:
            scale = pipeline_scale(self.cfg)
            size = scale if scale and within_budget(self.shape, scale) else tuple(self.shape[2:])
            if scale and size != scale:
                self.step.note(f'not checked at the test pipeline\'s own scale, {scale[0]}x{scale[1]}: too large for the time of a check; '
                               'give --image, and your picture is')
            try:
                found[PHOTOGRAPH] = read_photograph(self.cfg, str(PACKAGED), size=size, **common)
            except InputError as exc:  # A pipeline that needs more than a picture is the user's business only with his own pictures.
                self.step.note(f'the packaged photograph was left out: {exc}')
        for name, path in picture_files(self.section['inputs']['image']).items():
            found[name] = read_photograph(self.cfg, path, **common)
        for name, path in picture_files(self.more_pictures).items():
            try:
                found.setdefault(name, read_photograph(self.cfg, path, **common))
            except (InputError, ConfigError) as exc:  # Nobody asked for these.
                self.step.note(f'{path} was left out: {exc}')
        return found

    def _guard(self, plan: Plan, samples: Sequence[Sample]) -> InputGuard:
        """What the file takes: the box of sizes that were tried, and the multiples that eager takes."""
        dynamic = self._open_axes(plan)
        shapes = [tuple(sample.image.shape) for sample in samples]
        return InputGuard(self.shape, dynamic, ranges=ranges_of(shapes, dynamic) if samples else {},
                          multiple_of=plan.rules.multiple_of, minimum=plan.rules.minimum)

    def _open_axes(self, plan: Plan) -> tuple[str, ...]:
        dynamic = tuple(self.section['inputs']['dynamic'] or ())
        return tuple(name for name in dynamic if name == 'batch') if plan.rules.fixed else dynamic

    def _audit(self, adapter: Adapter, image: Tensor) -> Audit:
        key = (adapter.outputs, type(adapter))
        if key not in self.memory.audits:
            with self.step('Looking for tensors on the wrong device'):
                self.memory.audits[key] = screened(adapter, image, self.device, self.fix)
        stop_where_it_would_fail(self.memory.audits[key], self.device, self.fix)
        return self.memory.audits[key]

    def _mended(self, adapter: Adapter, audit: Audit) -> AbstractContextManager[list[str]]:
        return mended(adapter.model, audit, self.device) if self.fix else nullcontext([])

    def _expect(self, adapter: Adapter, plan: Plan, images: dict[str, Tensor],
                photographs: dict[str, Photograph]) -> tuple[list[Sample], Plan]:
        """Run unpatched eager on every input; an input of ours that it refuses is left out, and the plan says so."""
        if not self.checking:
            return [], plan
        noises = int(self.section['verify']['noises'])
        area = LARGE * images[TRACED].shape[2] * images[TRACED].shape[3]
        once = [name for name, image in images.items() if name == PHOTOGRAPH
                or image.shape[0] * image.shape[2] * image.shape[3] > max(area, ALWAYS_SMALL)]
        with self.step(f'Running eager on {len(images)} inputs, and up to {noises} noises of each'):
            for name, image in images.items():
                try:
                    with eager_in_words({name: image}):
                        expect(adapter, {name: image}, self.tolerance, 0, self.memory, as_given=(*photographs, WINDOWS), once=once)
                except InputError as exc:
                    if name in (TRACED, SAME) or name in photographs or self.section['verify']['shapes'] is not None:
                        raise
                    plan = plan.without(name, str(exc))
            images = {name: image for name, image in images.items() if name not in plan.dropped}
            with eager_in_words(images):
                return expect(adapter, images, self.tolerance, noises, self.memory, as_given=(*photographs, WINDOWS), once=once), plan

    def _decisive(self, adapter: Adapter, plan: Plan, samples: Sequence[Sample]) -> list[Sample]:
        """Make inputs on which classes are decided that the others do not show."""
        if not samples or adapter.outputs != 'final' or not adapter.class_count:
            return []
        height, width = _decisive_size(self.shape, plan.rules)
        batch = 1 if 'batch' in self._open_axes(plan) else self.shape[0]
        origins = (picture((batch, adapter.channels, height, width), 100 + number, adapter).to(self.device) for number in range(COUNT))
        with self.step('Making inputs on which more classes are decided', 'making inputs'), eager_in_words({}):
            seen = {label for sample in samples for label in self._decided(adapter, sample)}
            made = decisive_inputs(adapter, origins, seen)
        for number, one in enumerate(made, 1):
            if one.image is None and one.reason:
                self.step.note(f'decisive input {number}: not used: {one.reason}')
        images = {f'decisive {number}': one.image for number, one in enumerate(made, 1) if one.image is not None}
        with self.step(f'Running eager on {len(images)} inputs on which more classes are decided'):
            samples = expect(adapter, images, self.tolerance, int(self.section['verify']['noises']), self.memory, as_given=images)
        return [sample for sample in samples if self._decides_clearly(adapter, sample)]

    def _decides_clearly(self, adapter: Adapter, sample: Sample) -> bool:
        """Whether eager is sure of enough on `sample` for a comparison; says so where it is not."""
        specs = [spec.as_dict() for spec in adapter.specs]
        rows = compare(specs, sample.expected, [sample.expected[str(spec['name'])] for spec in specs], sample.evidence, sample=sample.name,
                       stage='itself', floors=sample.floors, tolerance=self.tolerance)
        problem = next((row.problem for row in rows if row.problem), None)
        if problem:
            self.step.note(f'{sample.name}: not used: {problem}')
        return problem is None

    def _decided(self, adapter: Adapter, sample: Sample) -> frozenset[int]:
        image = adapter.preprocess(sample.image.to(self.device))
        with torch.no_grad():
            return adapter.decided(tuple(sample.raw[spec.name].to(self.device) for spec in adapter.raw_specs), image)

    def _branches(self, adapter: Adapter, plan: Plan, samples: Sequence[Sample], photographs: Collection[str]) -> Settled:
        """Find the Python branches of the model, and inputs that turn those which no input turned so far."""
        if not samples:
            return Settled(Branches())
        shapes = {sample.name: _sides(sample.image) for sample in samples}
        log = BranchLog(lambda image: _decided(adapter, image), adapter.channels, {name: self.memory.branches[name] for name in shapes},
                        shapes, accepted=tuple(self.section['verify']['accept_branches']))
        small = min(shapes.values(), key=lambda shape: shape[1] * shape[2])
        noises = int(self.section['verify']['noises'])
        # The user's own sizes and pictures are what he wants to use.
        keep = [name for name in shapes if self.section['verify']['shapes'] is not None or name in (TRACED, SAME, WINDOWS)
                or name in photographs and name != PHOTOGRAPH]

        def add(name: str, image: Tensor) -> tuple[Sample, BranchRun] | None:
            try:
                with eager_in_words({name: image}):
                    sample = expect(adapter, {name: image}, self.tolerance, noises, self.memory, as_given=PLAIN)[0]
            except InputError:  # Eager itself refuses it: a size, or a picture, that the model does not take.
                return None
            if not self._decides_clearly(adapter, sample):
                raise Unclear(name)
            return sample, self.memory.branches[name]

        for given in log.accepted:
            if self.memory.note is None and not any(is_place(given, site) for site in log.sites):
                known = ', '.join(sorted({site.place for site in log.sites})) or 'none'
                raise ConfigError(f'--accept-branch {given} (export.verify.accept_branches) names no branch of this model; '
                                  f'those that it has: {known}')
        with self.step('Looking for inputs that turn branches', 'making inputs'):
            return settle(log, ranges_of([tuple(sample.image.shape) for sample in samples], self._open_axes(plan)), plan.rules.multiple_of,
                          lambda shape, seed: picture((shape[0], adapter.channels, *shape[1:]), 50 + seed, adapter).to(self.device),
                          lambda kind: plain_picture((self.shape[0], adapter.channels, *small[1:]), kind, adapter).to(self.device),
                          add, keep, self.memory.note)

    def _test_steps(self, adapter: Adapter, samples: Sequence[Sample],
                    photographs: dict[str, Photograph]) -> tuple[list[PipelineCheck], list[BranchRun]]:
        """Run OpenMMLab's own ``test_step`` on every sample, unpatched; returns the checks, and what its post-processing decided."""
        if not samples:
            return [], []
        if reason := why_not_run(adapter):
            return [PipelineCheck(sample.name, skipped=reason) for sample in samples], []
        steps: list[BranchRun] = []
        with self.step("Running the model's own test_step"):
            checks = [check_sample(adapter, sample, self.device, photographs.get(sample.name), self.tolerance, steps)
                      for sample in samples if sample.name != WINDOWS]
            return checks + [check_slid(adapter, sample, self._slid_picture(adapter), self.tolerance)
                             for sample in samples if sample.name == WINDOWS], steps

    def _run_patched(self, adapter: Adapter, samples: list[Sample]) -> list[Sample]:
        if not samples:
            return samples
        with self.step(f'Running patched eager on {len(samples)} inputs'):
            return with_patched(adapter, samples, self.device, self.memory)

    def _lower(self, staging: Path, applied: Sequence[Applied], branches: Branches, backend: Backend, adapter: Adapter,
               example: Tensor) -> Artifact:
        manifest = describe(adapter, example, applied, versions(), self.cfg, self.checkpoint, branches.accepted)
        adapter.check_raw = self.checking
        with self.step(f'Lowering to {backend.name} at {"x".join(map(str, example.shape))}', 'lowering'), few_collections():
            return backend.lower(adapter, example, staging / backend.name, manifest)

    def _stages(self, adapter: Adapter, samples: list[Sample]) -> list[Any]:
        return patched_rows(adapter, samples, self.tolerance) if samples else []

    def _patched(self) -> AbstractContextManager[list[Applied]]:
        return patched(self.section['patches'], Environment(str(self.device), versions()))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The traced shape (N, C, H, W)."""
        adapter = getattr(self, 'adapter', None)
        return traced_shape(self.cfg, self.section, adapter.channels if adapter else None)


def _decisive_size(shape: Sequence[int], rules: SizeRules) -> tuple[int, int]:
    """Height and width of inputs that are made by gradients: small, unless the model takes one size only."""
    if rules.fixed:
        return int(shape[2]), int(shape[3])
    return rules.up(min(SIDE, shape[2])), rules.up(min(SIDE, shape[3]))


def _sides(image: Tensor) -> tuple[int, int, int]:
    """Batch, height and width."""
    return int(image.shape[0]), int(image.shape[2]), int(image.shape[3])


def _decided(adapter: Adapter, image: Tensor) -> None:
    """Run the model and its decisions, as `expect` does."""
    image = adapter.preprocess(image)
    raw, _ = adapter.watch(image)
    adapter.decide(raw, image)
