"""Export a config and a checkpoint to lowered files, and verify them."""
from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..adapters import Adapter, adapter_for
from ..artifact import FAILED, Artifact
from ..backends import Backend, build_backends
from ..branches import Branches
from ..compat.missing_loss import give_missing_losses
from ..device import Audit, devices_fixed
from ..device.preflight import preflight, stop_where_it_would_fail
from ..device.unregistered_tensors import stop_gradients
from ..diagnosis import DiagnosisSession
from ..inputs.making import InputMaker, Inputs
from ..inputs.shapes import open_axes, traced_shape
from ..model.build import CheckpointOptions, check_device, load_model
from ..model.checkpoint import LoadReport
from ..model.config import export_section, levels_of
from ..model.predictor import predictor
from ..patching import Applied, Environment, patched
from ..report.facts import Report
from ..utils.gc import raised_gc_threshold
from ..utils.precision import exact_arithmetic
from ..utils.progress import Progress
from ..utils.skipped import restore_notes, skipped
from ..verification.checker_process import waiting
from ..verification.patched_eager import PatchedEager, patched_rows
from ..verification.reference import Reference, reference_key
from ..verification.reference_maker import ReferenceMaker
from ..verification.verify_all import ArtifactVerifier
from .build import conflicting, guard_tried_sizes, in_words, lower_all
from .manifest import describe
from .options import check_options
from .publish import publish_report, report_failure_on_exception
from .staging import default_work_dir, staging_dir
from .versions import versions

if TYPE_CHECKING:
    from mmengine.config import Config


class Exporter:
    """Export one model and verify the files.

    Args:
        cfg: any OpenMMLab config; its ``export`` section is optional.
        checkpoint: a file, or None for the weights that the model is built with (or `model` has).
        work_dir: gets a folder for each backend, with the report in it; what failed lies under ``failed/`` instead. With several levels
            of outputs each has a folder of its own in it. Default: ``work_dirs/CONFIG``.
        device: where the model runs, is lowered and is checked.
        options: how the checkpoint is read.
        checking: False only lowers; whatever was not run then reads None in the report.
        samples: keep inputs and expected outputs beside the file.
        model: a built and loaded model to use instead of building one, and `fit` how the checkpoint fitted it. Its parameters no longer
            require gradients afterwards.
        reference: of an earlier run; it is used again if it is of the same weights, inputs and options.
        diagnose: after a failure, look for the smallest module that fails; see `mmexport.diagnosis`.
        more_pictures: files to check besides those of ``export.inputs.image``; one that cannot be read is a note, no error.
        fix: for the time of the export, fix what the device audit finds, where it can; else findings stop an export for CUDA.

    Attributes:
        adapter, reference: of the last run; the reference was computed with the adapter.

    Raises:
        MMExportError: one of `mmexport.errors`; see there for which.
    """

    adapter: Adapter

    def __init__(self, cfg: Config, checkpoint: str | None = None, work_dir: str | Path | None = None, device: str = 'cpu', *,
                 options: CheckpointOptions | None = None, checking: bool = True, samples: bool = True, quiet: bool = True,
                 model: nn.Module | None = None, fit: LoadReport | None = None, reference: Reference | None = None, fix: bool = False,
                 diagnose: bool = True, more_pictures: Sequence[str] = ()) -> None:
        self.cfg, self.checkpoint, self.work_dir = cfg, checkpoint, Path(work_dir or default_work_dir(cfg.filename))
        self.section = export_section(cfg)
        self.levels = levels_of(self.section)
        self.device = check_device(device)
        self.options, self.checking, self.samples, self.diagnose = options, checking, samples, diagnose
        self.model = None if model is None else predictor(model)
        if self.model is not None:
            give_missing_losses(self.model)
        self.fit, self.reference, self.fix, self.more_pictures = fit, reference, fix, more_pictures
        self.backends = build_backends(self.section['backends'])
        self.tolerance = float(self.section['verify']['tolerance']['scale'])
        self.step = Progress(quiet)

    @classmethod
    def from_cfg(cls, cfg: Config | dict[str, Any] | str | Path, checkpoint: str | None = None, **kwargs: Any) -> Exporter:
        """Create an exporter from a Config, a dict, or the path of a config file; the rest as in the constructor."""
        from mmengine.config import Config

        from ..model.config import load_config
        if isinstance(cfg, (str, Path)):
            cfg = load_config(cfg)
        return cls(cfg if isinstance(cfg, Config) else Config(cfg), checkpoint, **kwargs)

    def run(self) -> list[Report]:
        """Export every format at every level of outputs; return one report a level. A format that could not be made is a failure in it."""
        facts = dict(config=str(self.cfg.filename), checkpoint=self.checkpoint, device=str(self.device))
        with exact_arithmetic(), restore_notes(), report_failure_on_exception(self.work_dir, **facts):
            check_options(self.section, self.work_dir, self.shape)
            self.model, self.fit = self._load()
            stop_gradients(self.model)
            adapters = [adapter_for(self.model, self.section, level, self.device) for level in self.levels]
            # The reference of decisions has the raw outputs that they were made from: the network runs once for both.
            adapter = self.adapter = next((one for one in adapters if one.outputs == 'final'), adapters[0])
            inputs = self._inputs(adapter)
            audit = self._audit(adapter, inputs.traced)
            fixing: AbstractContextManager[list[str]] = devices_fixed(adapter.model, audit, self.device) if self.fix else nullcontext([])
            with fixing as fixed:
                for one in adapters:
                    one.check_raw = self.checking
                    one.preprocess.check_against(self.model)
                reference = self.reference = self._reference(adapter, inputs)
                patched_eager = PatchedEager(self._patched, self.device, self.step)
                audit = replace(audit, fixed=tuple(fixed))
                return [self._export(one, inputs, audit, reference.at(one), patched_eager) for one in adapters]

    def _export(self, adapter: Adapter, inputs: Inputs, audit: Audit, reference: Reference, patched_eager: PatchedEager) -> Report:
        """Lower, verify and publish every format at one level of outputs."""
        work_dir = self.work_dir if len(self.levels) == 1 else self.work_dir / adapter.outputs
        rules, samples = reference.plan.rules, list(reference.samples)
        dynamic = open_axes(self.section['inputs']['dynamic'] or (), rules)
        session = DiagnosisSession(self.cfg, dynamic, rules.multiple_of, self.tolerance, work_dir / FAILED, self._patched, self.step,
                                    self.diagnose)
        guard_tried_sizes(adapter, self.shape, dynamic, reference)
        with staging_dir(work_dir) as staging, ExitStack() as until_checked:
            with self._patched() as applied:
                samples = patched_eager.run(adapter, samples)
                # Not before the network has run: here one core is idle.
                first = self.backends[0]
                checker = until_checked.enter_context(waiting(first.name, staging / 'scratch', first.runner_file())) if samples else None
                lower = partial(self._lower, staging, applied, reference.branches)
                artifacts, failures = lower_all(self.backends, lower, adapter, inputs.traced, session)
            verifier = ArtifactVerifier(adapter, self.tolerance, self.device, self.step)
            checks, samples = verifier.verify(artifacts, samples, staging / 'scratch', checker)
            samples = patched_eager.run_where_failed(adapter, samples, checks)
            session.on_parity(self.backends, adapter, samples, checks, reference.branches)
            report = Report(
                config=str(self.cfg.filename), checkpoint=self.checkpoint, device=str(self.device), task=adapter.task,
                outputs=adapter.outputs, fit=self.fit, applied=tuple(applied), artifacts=tuple(artifacts),
                stages=tuple(patched_rows(adapter, samples, self.tolerance)), checks=tuple(checks), pipelines=reference.pipelines,
                floors={s.name: dict(s.floors) for s in samples}, failures=in_words(failures), conflicts=conflicting(failures),
                diagnoses=tuple(session.diagnoses), audit=audit, tolerance=self.tolerance,
                seconds=dict(self.step.seconds), versions=versions(), work_dir=work_dir, plan=reference.plan,
                inputs={sample.name: tuple(sample.image.shape) for sample in samples},
                notes=(*self.step.notes, *adapter.remarks(), *skipped()), seconds_by_kind=dict(self.step.by_kind),
                branches=reference.branches)
            return publish_report(report, samples, keep=self.samples and self.checking)

    def _load(self) -> tuple[nn.Module, LoadReport | None]:
        if self.model is not None:
            self.model.to(self.device).eval()
            return self.model, self.fit
        with self.step('Building the model and reading the checkpoint', 'set-up'), raised_gc_threshold():
            return load_model(self.cfg, self.checkpoint, self.device, self.options)

    def _inputs(self, adapter: Adapter) -> Inputs:
        adapter.guard_inputs(torch.empty(self.shape), self.section['inputs']['dynamic'] or ())
        return InputMaker(self.cfg, self.section, adapter, self.shape, self.device, self.step, self.more_pictures, self.checking,
                          partial(self._audit, adapter)).make()

    def _reference(self, adapter: Adapter, inputs: Inputs) -> Reference:
        if not self.checking:
            return Reference((), inputs.plan, level=adapter.outputs)
        key = reference_key(adapter, [self.section[name] for name in ('task', 'inputs', 'verify')], self.shape, self.more_pictures)
        if self.reference is not None and self.reference.fits(key, adapter.outputs):
            return self.reference
        maker = ReferenceMaker(self.section, adapter, self.shape, self.device, self.tolerance, self.step)
        return replace(maker.compute(inputs), key=key)

    def _audit(self, adapter: Adapter, image: Tensor) -> Audit:
        with self.step('Looking for tensors on the wrong device', 'set-up'):
            audit = preflight(adapter, image, self.device, self.fix)
        stop_where_it_would_fail(audit, self.device, self.fix)
        return audit

    def _lower(self, staging: Path, applied: Sequence[Applied], branches: Branches, backend: Backend, adapter: Adapter,
               example: Tensor) -> Artifact:
        manifest = describe(adapter, example, applied, versions(), self.cfg, self.checkpoint, branches)
        with self.step(f'Lowering to {backend.name} at {"x".join(map(str, example.shape))}', 'lowering'), raised_gc_threshold():
            return backend.lower(adapter, example, staging / backend.name, manifest)

    def _patched(self) -> AbstractContextManager[list[Applied]]:
        return patched(self.section['patches'], Environment(str(self.device), versions()))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Return the traced shape (N, C, H, W)."""
        adapter = getattr(self, 'adapter', None)
        return traced_shape(self.cfg, self.section, adapter.channels if adapter else None)
