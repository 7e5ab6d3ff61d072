"""Hold the facts of one run, and render them as JSON and as text of 80 columns."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from textwrap import wrap
from typing import Any

from ..artifact import Artifact
from ..branches import Branches
from ..checker.comparison import Comparison
from ..checker.main import EAGER
from ..checker.reduced import FULL, rule
from ..device import Audit
from ..diagnosis import Diagnosis
from ..inputs.shapes import Plan
from ..model.checkpoint import LoadReport
from ..patching import Applied
from ..verification.test_step import PipelineCheck, summary_lines
from ..verification.verify import Verification


@dataclass(frozen=True)
class Report:
    """Hold the results of one run; `passed` is computed, and None if nothing was checked."""

    config: str
    checkpoint: str | None
    device: str
    task: str
    outputs: str
    fit: LoadReport | None
    applied: tuple[Applied, ...]
    artifacts: tuple[Artifact, ...]
    stages: tuple[Comparison, ...]
    checks: tuple[Verification, ...]
    pipelines: tuple[PipelineCheck, ...]
    floors: Mapping[str, Mapping[str, float]]
    tolerance: float
    seconds: Mapping[str, float]
    versions: Mapping[str, Any]
    work_dir: Path
    audit: Audit
    # Formats that could not be made, each with the reason.
    failures: Mapping[str, str] = field(default_factory=dict)
    diagnoses: tuple[Diagnosis, ...] = ()
    plan: Plan | None = None
    # Shape of each input that was checked, by name.
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds_by_kind: Mapping[str, float] = field(default_factory=dict)
    branches: Branches = field(default_factory=Branches)

    @property
    def passed(self) -> bool | None:
        if self.failures or self.branches.unresolved:
            return False
        verdicts = [self.passed_in(check.backend) for check in self.checks]
        return None if None in verdicts or not verdicts else all(verdicts)

    def passed_in(self, backend: str) -> bool | None:
        """Return the verdict on one format; if ``test_step`` and the adapter differ, no file can be right."""
        if backend in self.failures or self.branches.unresolved or any(row.passed is False for row in self.pipelines):
            return False
        return next((check.passed for check in self.checks if check.backend == backend), None)

    @property
    def reasons(self) -> list[str]:
        """Return the reasons why the run is no pass, a line each."""
        found = [f'{name}: {reason}' for name, reason in self.failures.items()]
        found += [f'{check.backend}: {check.reason}' for check in self.checks if check.reason]
        if any(not row.passed for check in self.checks for row in check.rows if row.stage == EAGER):
            found += [self.place_of_fault, *(f'decided once by a tracer, and turned by these inputs: {site.place}: {site.text}'
                                             for site in self.branches.turned if 'site-packages' not in site.file)]
        return found + self.branches.reasons + [f'test_step on {row.sample}: {row.reason}' for row in self.pipelines if row.passed is False]

    @property
    def time_by_kind(self) -> dict[str, float]:
        """Return the seconds by kind of step, see `Progress`."""
        return dict(self.seconds_by_kind)

    @property
    def place_of_fault(self) -> str:
        """Return the stage that introduced the fault: the patches, or the lowering."""
        wrong = [row for row in self.stages if not row.passed]
        if wrong:
            return f'the fault is in a patch: patched eager differs from eager ({wrong[0].sample}, {wrong[0].output}: {wrong[0].reason})'
        return 'the patches are right (patched eager agrees with eager); the fault is in the lowered file or in the weights'

    def as_dict(self) -> dict[str, Any]:
        return dict(
            passed=self.passed, verified=self.passed, reasons=self.reasons, config=self.config, checkpoint=self.checkpoint,
            device=self.device, task=self.task, outputs=self.outputs, audit=self.audit.as_dict(), fit=self.fit and self.fit.as_dict(),
            patches=[row.as_dict() for row in self.applied],
            artifacts=[dict(backend=a.backend, file=str(a.file), verified=check.passed, reason=check.reason, manifest=a.manifest,
                            found=check.found, eager_s=check.eager_s, over_eager=check.over_eager)
                       for a, check in zip(self.artifacts, self.checks, strict=True)],
            stages=[row.as_dict() for row in self.stages], pipelines=[row.as_dict() for row in self.pipelines],
            inputs={name: list(shape) for name, shape in self.inputs.items()}, dropped=dict(self.plan.dropped) if self.plan else {},
            branches=self.branches.as_dict(), size_rules=asdict(self.plan.rules) if self.plan else None, notes=list(self.notes),
            floors={name: dict(floors) for name, floors in self.floors.items()}, tolerance=self.tolerance,
            failures=dict(self.failures), diagnoses=[row.as_dict() for row in self.diagnoses],
            seconds=dict(self.seconds), versions=dict(self.versions))

    def lines(self, verbose: bool = False) -> Iterator[str]:
        """Yield the lines of the terminal table, about 80 columns; `verbose` shows every row of formats that pass too."""
        ops = {'stand-in': 'without compiled ops (stand-in)', 'compiled': 'with compiled ops'}[self.versions['mmcv_ops']]
        yield f"{Path(self.config).name}: {self.task}, outputs '{self.outputs}', on {self.device}"
        yield f"torch {self.versions['torch']}, mmcv {ops}"
        if self.fit and (self.fit.missing or self.fit.unexpected or self.fit.misshaped):
            yield (f'checkpoint: {len(self.fit.missing)} keys missing, {len(self.fit.unexpected)} unexpected, '
                   f'{len(self.fit.misshaped)} of another shape')
            for key in (self.fit.missing + self.fit.misshaped)[:5]:
                yield f'  not loaded: {key[:64]}'
        yield f'devices, as if on {self.audit.device}: {self.audit.verdict}'
        yield from (f'  mended: {line}' for line in self.audit.mended)
        acted = [row.name for row in self.applied if row.acted]
        yield from wrap(f"patches that acted: {', '.join(acted) or 'none'} (of {len(self.applied)} registered)", 80)
        yield from (note for row in self.applied if (note := row.untried(self.versions)))
        for artifact, check in zip(self.artifacts, self.checks, strict=True):
            yield from self._artifact_lines(artifact, check, verbose or check.passed is False)
        yield from summary_lines(self.pipelines)
        yield from self._input_lines()
        yield from self.branches.lines()
        yield from self.notes
        yield ''
        yield from self._formats()
        yield 'time: ' + ', '.join(f'{what} {took:.0f} s' for what, took in self.time_by_kind.items())
        verdict = {True: 'PASS', False: 'FAIL', None: 'not verified'}[self.passed]
        yield f"{verdict}: {self.work_dir / 'failed' if self.passed is False else self.work_dir}"
        yield from (f'  {reason}' for reason in self.reasons)
        yield from (line for row in self.diagnoses for line in row.lines())

    def _input_lines(self) -> Iterator[str]:
        """Yield the inputs that were tried, what they span, and what was left out."""
        if not self.inputs:
            return
        tried = ', '.join(f"{name} {'x'.join(map(str, (*shape[:1], *shape[2:])))}" for name, shape in self.inputs.items())
        yield from wrap(f'inputs tried: {tried}', 80)
        if self.plan and self.plan.rules.fixed:
            yield 'sizes: the model takes one size only'
        elif self.plan and self.plan.rules.multiple_of > 1:
            yield f'sizes: the model takes multiples of {self.plan.rules.multiple_of}'
        for name, reason in (self.plan.dropped if self.plan else {}).items():
            yield f'left out: {name}: {reason}'

    def _formats(self) -> Iterator[str]:
        """Yield one line a format: size, parity, the time of a call, and that over eager's."""
        yield f"{'format':<14}{'file':<12}{'MB':>7}{'parity':>9}{'p50 ms':>9}{'/eager':>8}  checked on"
        for artifact, check in zip(self.artifacts, self.checks, strict=True):
            time = f'{1e3 * check.seconds:>9.0f}{check.over_eager:>8.2f}' if check.seconds and check.over_eager else f"{'-':>9}{'-':>8}"
            parity = {True: 'pass', False: 'FAIL', None: 'not run'}[check.passed]
            size = artifact.manifest['bytes'] / 1e6
            yield f'{artifact.backend:<14}{artifact.file.name:<12}{size:>7.1f}{parity:>9}{time}  {self.device if check.found else "-"}'
        for name in self.failures:
            yield f"{name:<14}{'-':<12}{'-':>7}{'not made':>9}"

    def _artifact_lines(self, artifact: Artifact, check: Verification, rows: bool) -> Iterator[str]:
        yield ''
        yield f"{artifact.backend}: {artifact.file} ({artifact.manifest['bytes'] / 1e6:.1f} MB)"
        facts = artifact.manifest.get(artifact.backend, {})
        if fused := facts.get('fused'):
            yield (f"  conv+bn folded {fused['conv_bn_folded']}, linear layers joined {fused['linear_layers_joined']}, "
                   f"nodes {fused['nodes_before']} -> {fused['nodes_after']}")
        judged = {(site.file, site.line) for site in (*self.branches.turned, *self.branches.never, *self.branches.once)}
        # Formats that are made of one program say the same.
        said = {line for other in self.artifacts[:self.artifacts.index(artifact)]
                for line in other.manifest.get(other.backend, {}).get('tracer_warnings', ())}
        for line in facts.get('tracer_warnings', ()):
            file, number, _ = line.split(':', 2)
            if (file, int(number)) not in judged and line not in said:
                yield f'  tracer warning: {line}'
        if 'compile_s' in facts:
            yield f"  compiled in {facts['compile_s']:.0f} s"
        for op, form in facts.get('sampling', {}).items():
            yield f"  {op.replace('_', ' ')} by {form}, which the installed runtime gets right"
        precision = artifact.manifest.get('precision', FULL)
        if precision != FULL:
            yield f'  {rule(precision)}'
        if check.found is None:
            yield '  not run (--no-verify)'
            return
        if rows:
            yield from self._rows(check)
        yield from self._class_lines(artifact, check)
        for name, reason in check.found['vacuous'].items():
            yield f'  vacuous: {name}: {reason.split(":")[0]}'
        for name, reason in check.found.get('little_change', {}).items():
            yield f'  {name} vary little: {reason}'

    def _rows(self, check: Verification) -> Iterator[str]:
        stages = {(row.sample, row.output): row for row in self.stages}
        yield f"  {'sample':<15}{'output':<13}{'patched':>9}{'artifact':>9}{'floor':>7}  result"
        for row in check.rows:
            if row.stage == EAGER:
                patched = stages.get((row.sample, row.output))
                yield (f'  {row.sample:<15}{row.output:<13}{_figure(patched):>9}{_figure(row):>9}{row.floor:>7.1%}  '
                       f"{'pass' if row.passed else 'FAIL'}")

    def _class_lines(self, artifact: Artifact, check: Verification) -> Iterator[str]:
        """Yield how many classes the expected decisions show, and which they do not."""
        assert check.found is not None
        classes = check.found.get('classes')
        if not classes:
            return
        names = artifact.manifest.get('classes') or []
        never = [names[label] if label < len(names) else str(label) for label in classes['never']]
        count = len(classes['seen']) + len(never)
        words = f"{len(classes['seen'])} of {count} classes are decided somewhere"
        if never:
            shown = ', '.join(never[:6]) + (f' and {len(never) - 6} more' if len(never) > 6 else '')
            words += f'; never: {shown}: of those only the raw outputs were compared'
        yield from (f'  {line}' for line in wrap(words, 78))


def _figure(row: Comparison | None) -> str:
    """Return the error over the scale, or for label maps the share of pixels that differ."""
    if row is None or row.problem:
        return '-'
    if row.max_rel is not None:
        return f'{row.max_rel:.1e}'
    return f"{1 - row.metrics['pixel_agreement']:.2%}"
