"""Move results from the staging directory to the user's folder. What did not fail replaces what was there."""
from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..artifact import FAILED, MANIFEST, REPORT, Artifact
from ..checker.files import stale
from ..checker.samples import Sample
from ..errors import VerificationError
from ..report.facts import Report
from ..verification.verify import keep_samples
from .staging import link, publish, write_json


def publish_report(report: Report, samples: Sequence[Sample], keep: bool) -> Report:
    """Move each artifact to its place, with the report of its run. The report is returned with the new paths.

    ``report.json`` in the root is a link to the one in the first backend's folder: file and report change in the same step, so that a
    kill never leaves one run's file under another run's report.
    """
    artifacts = report.artifacts
    for artifact, check in zip(artifacts, report.checks, strict=True):
        _refuse_what_was_changed(artifact)
        if keep:
            keep_samples(artifact, check.own(samples), report.tolerance)
    roots = [_root(report.work_dir, report.passed_in(check.backend) is not False) for check in report.checks]
    report = replace(report, notes=(*report.notes, *_replaced_unchecked(report)), artifacts=tuple(
        Artifact(artifact.backend, root / artifact.backend / artifact.file.name,
                 artifact.write_manifest(verified=report.passed_in(artifact.backend)))
        for artifact, root in zip(artifacts, roots, strict=True)))
    for artifact, root in zip(artifacts, roots, strict=True):
        write_json(artifact.folder / REPORT, report.as_dict())
        publish(artifact.folder, root / artifact.backend)
        if root == report.work_dir:
            _forget_failure(report.work_dir / FAILED, artifact.backend)
    if not artifacts:
        # No artifact was made: earlier ones stay, and the reasons are written to a report under ``failed/``.
        (report.work_dir / FAILED).mkdir(parents=True, exist_ok=True)
        write_json(report.work_dir / FAILED / REPORT, report.as_dict())
    for artifact, root in reversed(list(zip(artifacts, roots, strict=True))):
        link(root / REPORT, f'{artifact.backend}/{REPORT}')
    if report.work_dir not in roots:
        # A good file of an earlier run stays where it is, with its own report; the report of this run says that it failed.
        link(report.work_dir / REPORT, f'{FAILED}/{REPORT}')
    return report


@contextmanager
def report_failure_on_exception(work_dir: Path, **facts: Any) -> Iterator[None]:
    """Let ``report.json`` show a failure after an exception. It would otherwise show the result of an earlier run.

    A file of an earlier run stays in its folder, with its own report.

    Args:
        facts: of the run, for the report.
    """
    try:
        yield
    except Exception as exc:
        if (work_dir / REPORT).exists():
            (work_dir / FAILED).mkdir(exist_ok=True)
            write_json(work_dir / FAILED / REPORT, dict(passed=False, verified=False, reasons=[f'{type(exc).__name__}: {exc}'], **facts))
            link(work_dir / REPORT, f'{FAILED}/{REPORT}')
        raise


def _forget_failure(failed: Path, backend: str) -> None:
    """Remove a failed result of this backend once a run of it does not fail."""
    if not failed.is_dir():
        return
    if (failed / backend).is_dir():
        shutil.rmtree(failed / backend)
    (failed / f'repro_{backend}.py').unlink(missing_ok=True)
    if not (failed / REPORT).exists() or {path.name for path in failed.iterdir()} == {REPORT}:
        (failed / REPORT).unlink(missing_ok=True)
    if not any(failed.iterdir()):
        failed.rmdir()


def _replaced_unchecked(report: Report) -> list[str]:
    """Return a note for each verified file whose place is taken by one that was not checked."""
    folders = [report.work_dir / check.backend for check in report.checks if report.passed_in(check.backend) is None]
    return [f'the file in {folder} had been verified; this one replaces it and was not checked' for folder in folders
            if (folder / MANIFEST).exists() and Artifact.read(folder).manifest.get('verified')]


def _root(work_dir: Path, good: bool) -> Path:
    return work_dir if good else work_dir / FAILED


def _refuse_what_was_changed(artifact: Artifact) -> None:
    """Raise if the file is not the one that was checked."""
    reason = stale(artifact.folder, Artifact.read(artifact.folder).manifest)
    if reason:
        raise VerificationError(f'after it was checked, {reason}; export again, and let nothing else write into the work dir')
