"""Hold the facts of one run, and render them as JSON."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..artifact import Artifact
from ..branches import Branches
from ..checker.comparison import EAGER, Comparison
from ..device import Audit
from ..diagnosis import Diagnosis
from ..inputs.shapes import Plan
from ..model.checkpoint import LoadReport
from ..patching import Applied
from ..verification.test_step import PipelineCheck
from ..verification.verify import Verification
from .terminal import render

# Inputs on which test_step disagrees that get a line each.
NAMED = 3


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
    # Those of them for which the installed packages do not go together.
    conflicts: tuple[str, ...] = ()
    diagnoses: tuple[Diagnosis, ...] = ()
    plan: Plan | None = None
    # Shape of each input that was checked, by name.
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds_by_kind: Mapping[str, float] = field(default_factory=dict)
    branches: Branches = field(default_factory=Branches)

    @property
    def only_conflicts(self) -> bool:
        """Return whether the run would pass but for formats whose packages do not go together."""
        other = {name: reason for name, reason in self.failures.items() if name not in self.conflicts}
        passed = replace(self, failures=other, conflicts=()).passed is not False and all(row.passed is not False for row in self.pipelines)
        return bool(self.conflicts) and passed

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
        reasons = [f'{name}: {reason}' for name, reason in self.failures.items()]
        reasons += [f'{check.backend}: {check.reason}' for check in self.checks if check.reason]
        if any(not row.passed for check in self.checks for row in check.rows if row.stage == EAGER):
            failed = {name for check in self.checks for name in check.failed_samples}
            reasons += [self.place_of_fault, *(f'decided once by a tracer, and turned by these inputs: {site.place}: {site.text}'
                                             for site in self.branches.turned_by(failed) if site.in_user_code)]
        return reasons + self.branches.reasons + list(self._wrong_in_test_step())

    def _wrong_in_test_step(self) -> Iterator[str]:
        """Yield a line for each input that turned a branch, and for the first of the others."""
        wrong = [row for row in self.pipelines if row.passed is False]
        others = 0
        for row in wrong:
            turned = [f'{site.place}: {site.text}' for site in self.branches.by_input.get(row.sample, ()) if site.in_user_code]
            others += not turned
            if turned or others <= NAMED:
                there = f" (answered otherwise there than at the traced input: {'; '.join(turned)})" if turned else ''
                yield f'test_step on {row.sample}: {row.reason}{there}'
        if others > NAMED:
            yield f'test_step on {others - NAMED} more inputs, see report.json'
        if own := dict.fromkeys(method for row in wrong for method in row.own):
            yield f"code of yours that test_step runs, and a file may not have: {', '.join(own)}"

    @property
    def time_by_kind(self) -> dict[str, float]:
        """Return the seconds by kind of step, see `Progress`."""
        return dict(self.seconds_by_kind)

    @property
    def place_of_fault(self) -> str:
        """Return the stage that introduced the fault: the patches, or the lowering."""
        wrong = [row for row in self.stages if not row.passed]
        if wrong:
            where = f'({wrong[0].sample}, {wrong[0].output}: {wrong[0].reason})'
            # Another shape, for example, or decisions of which eager itself is not sure.
            return f'the file is not the cause: patched eager cannot be compared with eager {where}' if wrong[0].problem else \
                f'the fault is in a patch: patched eager differs from eager {where}'
        return 'the patches are right (patched eager agrees with eager); the fault is in the lowered file or in the weights'

    def over_eager(self, check: Verification) -> float | None:
        """Return the file's time as a share of eager's; None where eager ran on kernels that are written to be plain."""
        return None if self.versions.get('reference_kernels') else check.over_eager

    def as_dict(self) -> dict[str, Any]:
        return dict(
            passed=self.passed, verified=self.passed, reasons=self.reasons, config=self.config, checkpoint=self.checkpoint,
            device=self.device, task=self.task, outputs=self.outputs, audit=self.audit.as_dict(), fit=self.fit and self.fit.as_dict(),
            patches=[row.as_dict() for row in self.applied],
            artifacts=[dict(backend=a.backend, file=str(a.file), verified=check.passed, reason=check.reason, manifest=a.manifest,
                            result=check.result, eager_s=check.eager_s,
                            over_eager=self.over_eager(check), choices_followed=dict(check.moved))
                       for a, check in zip(self.artifacts, self.checks, strict=True)],
            stages=[row.as_dict() for row in self.stages], pipelines=[row.as_dict() for row in self.pipelines],
            inputs={name: list(shape) for name, shape in self.inputs.items()}, dropped=dict(self.plan.dropped) if self.plan else {},
            branches=self.branches.as_dict(), size_rules=asdict(self.plan.rules) if self.plan else None, notes=list(self.notes),
            floors={name: dict(floors) for name, floors in self.floors.items()}, tolerance=self.tolerance,
            failures=dict(self.failures), diagnoses=[row.as_dict() for row in self.diagnoses],
            seconds=dict(self.seconds), seconds_by_kind=self.time_by_kind, versions=dict(self.versions))

    def lines(self, verbose: bool = False) -> Iterator[str]:
        """Yield the lines for a terminal; `verbose` shows every row of formats that pass too."""
        return render(self, verbose)
