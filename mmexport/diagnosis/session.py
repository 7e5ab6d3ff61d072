"""Diagnose failures for the exporter and ``tools/diagnose.py``: choose inputs, descend, write the repro."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..adapters import Adapter
from ..backends import Backend
from ..backends.examples import AXIS
from ..branches import Branches
from ..checker.compare import unclear
from ..checker.comparison import COUNT, EAGER, REFUSED, WRITES, Comparison
from ..checker.reduced import FULL, REDUCED, STANDS_OUT
from ..checker.samples import Sample
from ..errors import Fact, LoweringError, first_line
from ..utils.progress import Progress
from ..verification.noise_floor import model_floors
from ..verification.patched_eager import patched_rows
from ..verification.verify import Verification
from .branch import at_branch
from .diagnosis import Diagnosis, make_diagnosis
from .inplace import find_inplace_write
from .lowering import why_not_lowered
from .parity import Refused, why_patched_differs, why_wrong
from .parts import Part, part_of
from .repro import run_alone, write_repro

if TYPE_CHECKING:
    from mmengine.config import Config


class DiagnosisSession:
    """Collect the diagnoses of one run in `diagnoses`. With `on` False none are made.

    Args:
        dynamic: the open axes, and `multiple` what the sides of an input are multiples of.
        folder: where ``repro_<backend>.py`` is written.
        patches: makes the context in which the run's patches are on.
    """

    def __init__(self, cfg: Config, dynamic: Sequence[str], multiple: int, tolerance: float, folder: Path, patches: Callable[[], Any],
                 step: Progress, on: bool = True) -> None:
        self.cfg, self.dynamic, self.multiple, self.tolerance, self.folder = cfg, tuple(dynamic), multiple, tolerance, folder
        self.patches, self.step, self.on = patches, step, on
        self.diagnoses: list[Diagnosis] = []

    def on_lowering(self, backend: Backend, adapter: Adapter, example: Tensor, error: LoweringError) -> None:
        """Diagnose why `backend` cannot lower `adapter`; call it with the patches applied."""
        # A format of a project need not lower parts.
        if not self.on or type(backend).attempt is Backend.attempt:
            return
        with self._looking(f'Looking for what {backend.name} cannot lower', backend.name), adapter.unguarded():
            image = self._example(backend, example)
            larger = _larger(image, self.dynamic, self.multiple)
            diagnosis, part = why_not_lowered(backend, adapter, image, larger, error, self.step.say)
            self._keep(diagnosis, backend, part)

    def on_parity(self, backends: Sequence[Backend], adapter: Adapter, samples: Sequence[Sample], checks: Sequence[Verification],
                  branches: Branches) -> None:
        """Diagnose each file that failed its check. Its first wrong sample is taken, or one that it refuses. Patches must be off."""
        failed = [check for check in checks if check.passed is False]
        if not self.on or not failed:
            return
        # Where eager is unsure of most decisions any difference would be found, and none means anything.
        specs = [spec.as_dict() for spec in adapter.specs]
        clear = [sample for sample in samples if not unclear(specs, sample.expected, sample.evidence, sample.floors, self.tolerance)]
        bad = next((row for row in patched_rows(adapter, clear, self.tolerance) if not row.passed), None)
        if bad:
            with self._looking('Looking for the patch that is wrong', 'eager'), adapter.unguarded():
                image = self._sample(samples, bad).image.to(adapter.preprocess.mean.device)
                self.diagnoses.append(why_patched_differs(adapter, image, self.patches, self.tolerance, self._jumps(samples)))
            return
        for check in failed:
            backend = next(backend for backend in backends if backend.name == check.backend)
            names = {sample.name for sample in clear}
            failing = [row for row in check.rows if row.stage == EAGER and not row.passed
                       and (row.sample in names or row.kind in (REFUSED, WRITES, COUNT))]
            wrong = next((row for row in failing if row.kind != REFUSED), failing[0] if failing else None)
            if type(backend).intermediate is Backend.intermediate:
                continue
            if wrong and check.died:
                message = f'{wrong.problem}; not diagnosed: loading the file would crash this process'
                self.diagnoses.append(make_diagnosis(backend.name, 'file', None, adapter, message, fact=Fact.CRASH))
            elif wrong:
                with self._looking(f'Looking for where {check.backend} goes wrong', backend.name), self.patches(), adapter.unguarded():
                    diagnosis, part = self._where(backend, adapter, samples, wrong)
                    sites = branches.by_input.get(wrong.sample, ())
                    self._keep(at_branch(diagnosis, adapter, sites, refused=wrong.kind == REFUSED), backend, part)

    def _keep(self, diagnosis: Diagnosis, backend: Backend, part: Part | None) -> None:
        """Keep the finding, and a repro of it if that fails when it is run."""
        self.diagnoses.append(diagnosis)
        place = write_repro(diagnosis, backend, part, self.cfg, self.folder / f'repro_{diagnosis.backend}.py')
        if place is None:
            return
        other_error = run_alone(place, diagnosis)
        if other_error is None:
            place.unlink()
        else:
            repro = f'{place.parent.name}/{place.name}' + (f' ({other_error})' if other_error else '')
            self.diagnoses[-1] = replace(diagnosis, repro=repro)

    @contextmanager
    def _looking(self, what: str, backend: str) -> Iterator[None]:
        try:
            with self.step(what):
                yield
        except KeyboardInterrupt:
            self.on = False
            self.diagnoses.append(Diagnosis(backend, 'diagnosis', '', 'the diagnosis', None, None, None, None, 'interrupted', None, None))
        except Exception as exc:  # An error of the diagnosis must not lose the report of the failure; the report mentions it.
            self.diagnoses.append(Diagnosis(backend, 'diagnosis', '', 'the diagnosis', None, None, None, None,
                                        f'it failed itself, please report it: {type(exc).__name__}: {first_line(exc)}', None, None))

    def _where(self, backend: Backend, adapter: Adapter, samples: Sequence[Sample], wrong: Comparison) -> tuple[Diagnosis, Part | None]:
        device = adapter.preprocess.mean.device
        image, example = self._sample(samples, wrong).image.to(device), samples[0].image.to(device)
        if wrong.again:
            message = 'right in the first call and wrong in a later one: it keeps state between calls'
            return make_diagnosis(backend.name, 'file', None, adapter, message), None
        if wrong.kind == WRITES:
            call, module, place = find_inplace_write(adapter, image)
            return make_diagnosis(backend.name, 'traced', call, module, str(wrong.problem), place,
                           fact=Fact.WRITES_INPUT), None
        if wrong.kind == REFUSED:
            error = LoweringError(str(wrong.problem))
            return why_not_lowered(backend, adapter, self._example(backend, example), image, error, self.step.say, refused=True)
        try:
            diagnosis = why_wrong(backend, adapter, example, image, self.dynamic, self._may_be_off(backend), self._jumps(samples),
                              self.step.say)
            return diagnosis, part_of(adapter, diagnosis.module, self._example(backend, example), image)
        except Refused as exc:
            error = LoweringError(str(exc))
            return why_not_lowered(backend, adapter, self._example(backend, example), image, error, self.step.say, refused=True)

    def _may_be_off(self, backend: Backend) -> float:
        """Return the tolerance of a diagnosis: in reduced precision ten times the limit of the median."""
        precision = backend.computes_in
        return self.tolerance if precision == FULL else max(self.tolerance, STANDS_OUT * REDUCED[precision].median)

    def _example(self, backend: Backend, example: Tensor) -> Tensor:
        """Return a picture of the shape that `backend` lowers with."""
        return _noise(backend.lowered_example(example, self.dynamic, self.multiple))

    @staticmethod
    def _sample(samples: Sequence[Sample], row: Comparison) -> Sample:
        return next((sample for sample in samples if sample.name == row.sample), samples[0])

    @staticmethod
    def _jumps(samples: Sequence[Sample]) -> bool:
        return any(model_floors(samples).values())


def _noise(image: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(image.shape, generator=generator).to(image.device, image.dtype)


def _larger(image: Tensor, dynamic: Sequence[str], multiple: int = 1) -> Tensor:
    """Return another input: a larger batch, and higher and wider by whole strides, where those axes are open."""
    more = {'batch': 1, 'height': 64, 'width': -(-96 // multiple) * multiple}
    shape = list(image.shape)
    for name in dynamic:
        shape[AXIS[name]] += more[name]
    return _noise(image.new_empty(shape))
