"""From the workshop to the user's folder: what passed replaces what was there, what failed never does."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from .artifact import Artifact, publish, write_json
from .checking.samples import Sample
from .report import Report
from .verify import keep_samples

FAILED = 'failed'


def deliver(report: Report, samples: Sequence[Sample], keep: bool) -> Report:
    """Move each artifact to its place, write ``report.json``, and return the report with the places in it."""
    delivered = []
    # A file whose decisions disagree with the model's own post-processing is as wrong as one whose numbers do.
    agreed = all(pipeline.passed is not False for pipeline in report.pipelines)
    for artifact, check in zip(report.artifacts, report.checks, strict=True):
        if keep:
            keep_samples(artifact, samples, report.tolerance)
        place = _root(report.work_dir, check.passed is not False and agreed) / artifact.backend
        publish(artifact.folder, place)
        delivered.append(Artifact(artifact.backend, place / artifact.file.name, artifact.manifest))
    report = replace(report, artifacts=tuple(delivered))
    root = _root(report.work_dir, report.passed is not False)
    root.mkdir(parents=True, exist_ok=True)
    write_json(root / 'report.json', report.as_dict())
    return report


def _root(work_dir: Path, good: bool) -> Path:
    return work_dir if good else work_dir / FAILED
