"""Find the step and the module in which a file's values first differ from eager's."""
from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..adapters import Adapter
from ..backends import Backend
from ..checker.comparison import SLACK, WORST
from ..errors import Fact, first_line
from .calls import Call, list_calls, record, tensors_of
from .diagnosis import Diagnosis, Say, class_lines, make_diagnosis
from .remedies import Reason
from .tapped import INPUT, Tapped, Values

FUSED_ACROSS_MODULES = 'the error disappears when the modules are run one by one: it is in operators that the format fuses across modules'


def why_wrong(backend: Backend, adapter: Adapter, example: Tensor, image: Tensor, dynamic: Sequence[str], tolerance: float,
              jumps: bool = False, say: Say = lambda line: None) -> Diagnosis:
    """Descend to the first called module whose output is wrong, repeatedly; call it with the patches applied.

    Args:
        example: what the file is lowered with.
        image: the sample on which it is wrong.
        jumps: whether the model itself is discontinuous, so that a few values may be far off.
    """
    calls = list_calls(adapter.model, lambda: adapter.run_on(image))
    others = list_calls(adapter.model, lambda: adapter.run_on(example))
    runner = StageRunner(backend, adapter, example, dynamic)
    at: Call | None = None
    stage, message, tried = '', '', 0
    while True:
        children = [call for call in calls if call.inside == at]
        if children != [call for call in others if call.inside == at]:
            stage, message = stage or 'traced', 'it calls other modules on this input than on the one that it was lowered with'
            break
        recorded = record(adapter.model, lambda: adapter.run_on(image), children)
        tapped = Tapped(adapter, {call: recorded[call] for call in children if recorded[call].outputs})
        if stage and not tapped.counts:
            break
        say(f'watching {len(tapped.counts)} modules in {at or "the model"}')
        right = runner.eager(tapped, image)
        stage, values = (stage, runner.values(stage, tapped, image)) if stage else runner.step(tapped, image, right, tolerance, jumps)
        tried += len(tapped.counts)
        if isinstance(values, str):
            raise Refused(values)
        wrong = first_wrong(right, values, tolerance, jumps)
        if wrong is None and at is None:
            message = differs(right.outputs, values.outputs, tolerance, jumps) or FUSED_ACROSS_MODULES
        if wrong is None or wrong[1] == INPUT:
            # The inputs of its first wrong part are wrong already, or all parts are right: its own code is at fault.
            message = message or (wrong[2] if wrong else '')
            break
        at, _, message = wrong
    module = adapter if at is None else adapter.model.get_submodule(at.path)
    place, warning = _warned(backend, adapter, example, module) if stage == 'traced' else (None, '')
    return make_diagnosis(backend.name, stage, at, module, f'{message}{warning}', place, None, tried, getattr(message, 'fact', None))


def first_wrong(right: Values, values: Values, tolerance: float, jumps: bool) -> tuple[Call, str, str] | None:
    """Return the first call with a wrong input or output: the call, `INPUT` or `OUTPUT`, and the error."""
    for (call, what, one), (_, _, other) in zip(right.events(), values.events(), strict=True):
        reason = differs(one, other, tolerance, jumps)
        if reason:
            return call, what, reason
    return None


def why_patched_differs(adapter: Adapter, image: Tensor, patched: Any, tolerance: float, jumps: bool = False) -> Diagnosis:
    """Return the first module whose output a patch changes; `patched` makes the context with patches applied."""
    calls = list_calls(adapter.model, lambda: adapter.run_on(image))
    at: Call | None = None
    message = ''
    while True:
        children = [call for call in calls if call.inside == at]
        right = record(adapter.model, lambda: adapter.run_on(image), children)
        with patched():
            patched_calls = record(adapter.model, lambda: adapter.run_on(image), children)
        both = [call for call in children if call in patched_calls]
        one, other = (Values([], {call: tensors_of((rows[call].args, rows[call].kwargs)) for call in both},
                             {call: rows[call].outputs for call in both}) for rows in (right, patched_calls))
        wrong = first_wrong(one, other, tolerance, jumps)
        if wrong is None or wrong[1] == INPUT:
            message = message or (wrong[2] if wrong else '')
            break
        at, _, message = wrong
    module = adapter if at is None else adapter.model.get_submodule(at.path)
    return make_diagnosis('eager', 'patched', at, module, message or 'differs after the last module',
                   fact=getattr(message, 'fact', None))


class Refused(Exception):
    """Report that the intermediate form, or the runtime, does not take the sample."""


class StageRunner:
    """Run a `Tapped` adapter in three ways: eager, the intermediate form, and the file."""

    def __init__(self, backend: Backend, adapter: Adapter, example: Tensor, dynamic: Sequence[str]) -> None:
        self.backend, self.adapter, self.example, self.dynamic = backend, adapter, example, list(dynamic)

    def eager(self, tapped: Tapped, image: Tensor) -> Values:
        with torch.no_grad():
            return tapped.split(tapped.run_on(image))

    def step(self, tapped: Tapped, image: Tensor, right: Values, tolerance: float, jumps: bool) -> tuple[str, Values | str]:
        """Return the faulty step (``traced``, ``exported`` or ``file``), and the values after it."""
        name, run = self.backend.intermediate(cast(Adapter, tapped), self.example.clone(), self.dynamic)
        try:
            with torch.no_grad():
                values = tapped.split(run(*tapped.inputs_of(image.clone())))
        except (RuntimeError, ValueError, AssertionError) as exc:
            return name, f'does not take {tuple(image.shape)}: {first_line(exc)}'
        if first_wrong(right, values, tolerance, jumps) or differs(right.outputs, values.outputs, tolerance, jumps):
            return name, values
        return 'file', self.values('file', tapped, image)

    def values(self, stage: str, tapped: Tapped, image: Tensor) -> Values | str:
        if stage != 'file':
            _, run = self.backend.intermediate(cast(Adapter, tapped), self.example.clone(), self.dynamic)
            with torch.no_grad():
                return tapped.split(run(*tapped.inputs_of(image.clone())))
        manifest = dict(inputs=[dict(name=spec.name, axes=list(spec.axes), dynamic=[*spec.open_axes(self.dynamic)])
                                for spec in tapped.input_specs], outputs=[spec.as_dict() for spec in tapped.specs])
        with TemporaryDirectory() as folder:
            artifact = self.backend.lower(cast(Adapter, tapped), self.example.clone(), Path(folder) / self.backend.name, manifest)
            try:
                run = self.backend.load(artifact, image.device)
                with torch.no_grad():
                    return tapped.split([output.to(image.device) for output in run(*tapped.inputs_of(image.clone()))])
            except Exception as exc:  # Runtimes raise exceptions of their own classes; the message is the finding.
                return f'the runtime does not take {tuple(image.shape)}: {first_line(exc)}'


def differs(expected: Sequence[Tensor], actual: Sequence[Tensor], tolerance: float, jumps: bool) -> str | None:
    """Return the error of the first wrong tensor, in one line."""
    for one, other in zip(expected, actual, strict=False):
        if one.shape != other.shape:
            return Reason(f'shape {tuple(other.shape)} instead of {tuple(one.shape)}: a size may be baked into the graph', Fact.FIXED_SIZE)
        if one.dtype != other.dtype:
            return Reason(f'dtype {other.dtype} instead of {one.dtype}', Fact.OTHER_DTYPE)
        if not one.numel():
            continue
        if not one.is_floating_point():
            if not jumps and not torch.equal(one, other):
                return f'{int((one != other).sum())} of {one.numel()} values differ'
            continue
        finite = torch.isfinite(one)
        scale = float(one[finite].abs().max()) or 1.0 if bool(finite.any()) else 1.0
        same = (one == other) | (one.isnan() & other.isnan())
        error = torch.where(same, torch.zeros_like(one), (one - other).abs() / scale).nan_to_num(float('inf'))
        worst, beyond = float(error.max()), float((error > tolerance).float().mean())
        if not worst <= tolerance and not (jumps and beyond <= SLACK and worst < WORST):
            return f'off by {worst:.1e} of scale, {beyond:.0%} of the values beyond {tolerance:g}'
    return None


def _warned(backend: Backend, adapter: Adapter, example: Tensor, module: nn.Module) -> tuple[tuple[str, int] | None, str]:
    """Return the line of `module` about which the tracer warns, and the warning."""
    lines = class_lines(module)
    if not backend.traces or lines is None:
        return None, ''
    with warnings.catch_warnings(record=True) as caught, torch.no_grad():
        warnings.simplefilter('always')
        torch.jit.trace(adapter, adapter.inputs_of(example.clone()), check_trace=False)
    for warning in caught:
        if issubclass(warning.category, torch.jit.TracerWarning) and warning.filename == lines[0] and warning.lineno in lines[1]:
            return (warning.filename, warning.lineno), '; ' + str(warning.message).split('. ')[0].split(' might cause')[0]
    return None, ''
