"""Run one job in a separate process: ``python -m mmexport.sweep.job JOB.json WEIGHTS.pth ROWS.json``."""
from __future__ import annotations

import json
import logging
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from ..errors import EagerError, MMExportError, eager_in_words, first_line, last_line
from .plan import OUTPUTS, Job, path_of

if TYPE_CHECKING:
    from mmengine.config import Config

    from ..export.exporter import Exporter
    from ..report.facts import Report
    from ..verification.reference import Reference

Result = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    spec, weights, out = sys.argv[1:] if argv is None else argv
    logging.disable(logging.WARNING)
    warnings.filterwarnings('ignore')
    for rows in run(Job.from_dict(json.loads(Path(spec).read_text())), Path(weights)):
        draft = Path(f'{out}.draft')
        draft.write_text(json.dumps(rows))
        draft.replace(out)
    return 0


def run(job: Job, weights: Path) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of `job`, one a format, each time that more is known; what fails is a row with the reason.

    Both levels of outputs over one model, as the default command does; then, where a format failed, the diagnosis, which may take the rest
    of the time.
    """
    started = time.perf_counter()
    facts: dict[str, Any] = {}
    try:
        cfg, weights = _prepared(job, weights)
        with tempfile.TemporaryDirectory() as folder:
            exporter = _exporter(cfg, weights, folder, OUTPUTS, job.backends)
            reports = exporter.run()
        facts.update(_facts(reports[0]))
        results = {backend: {report.outputs: _result(report, backend) for report in reports} for backend in job.backends}
        yield _rows(job, results, facts, started)
    except MMExportError as exc:
        yield job.rows(complete=True, passed=False, reason=f'{type(exc).__name__}: {first_line(exc)}', seconds=_since(started))
        return
    except Exception as exc:  # Upstream may raise anything while a model is built; in a sweep that is a row.
        yield job.rows(complete=True, passed=False, reason=f'{type(exc).__name__}: {last_line(exc)}', seconds=_since(started))
        return
    failed = {backend: next(outputs for outputs in OUTPUTS if not of[outputs]['passed'])
              for backend, of in results.items() if not all(result['passed'] for result in of.values())}
    # The rows are out: an error of the diagnosis ends this process, and no row with it.
    for backend, outputs in failed.items():
        facts.setdefault('diagnoses', {})[backend] = diagnosed(cfg, job, weights, backend, outputs, exporter.reference)
        yield _rows(job, results, facts, started)


def diagnosed(cfg: Config, job: Job, weights: Path, backend: str, outputs: str, reference: Reference | None) -> dict[str, Any]:
    """Diagnose a failed format by a second run; `repro` is the name of the file that shows the failure, if any."""
    with tempfile.TemporaryDirectory() as folder:
        reports: list[Report] = []
        with suppress(MMExportError):  # That it fails is known.
            reports = _exporter(cfg, weights, folder, [outputs], [backend], diagnose=True, reference=reference).run()
        repros = weights.parents[1] / 'repros'
        repro, place = Path(folder) / 'failed' / f'repro_{backend}.py', repros / f'{job.name}_{backend}.py'
        # The line of the repro says whether it fails alone, too.
        lines = [line.replace(f'failed/{repro.name}', f'repros/{place.name}')
                 for report in reports for row in report.diagnoses for line in row.lines()]
        if not repro.is_file():
            return dict(diagnosis=lines)
        repros.mkdir(parents=True, exist_ok=True)
        place.write_text(repro.read_text())
    return dict(diagnosis=lines, repro=f'repros/{place.name}')


def _prepared(job: Job, weights: Path) -> tuple[Config, Path]:
    """Return the config with the job's options, and the file of its seeded weights. The file is written where there is none.

    A model that takes its own size only is exported without the job's shape, as a user would have to.
    """
    from ..compat import check_packages
    check_packages()
    own_size_weights = weights.with_suffix('.own.pth')
    if job.shape and not own_size_weights.is_file():
        cfg = _config(job, job.shape)
        try:
            return cfg, _seeded(cfg, weights, job.shape)
        except EagerError:
            pass
    cfg = _config(job, None)
    return cfg, _seeded(cfg, own_size_weights if job.shape else weights, (0, 0))


def _config(job: Job, shape: tuple[int, int] | None) -> Config:
    from ..model.config import load_config
    cfg = load_config(path_of(job.config))
    if job.images:
        cfg.merge_from_dict({'export.inputs.image': list(job.images)})
    if shape:
        cfg.merge_from_dict({'export.inputs.shape': list(shape)})
    return cfg


def _seeded(cfg: Config, weights: Path, size: tuple[int, int]) -> Path:
    import torch

    from ..seeding.checkpoint import write_checkpoint
    if not weights.is_file():
        with eager_in_words({'seeding': torch.empty(1, 3, *size)}, hint=all(size)):
            write_checkpoint(cfg, weights)
    return weights


def _exporter(cfg: Config, weights: Path, folder: str, outputs: Sequence[str], backends: Sequence[str], diagnose: bool = False,
              reference: Reference | None = None) -> Exporter:
    import copy

    from ..export.exporter import Exporter
    cfg = copy.deepcopy(cfg)
    cfg.merge_from_dict({'export.outputs': list(outputs), 'export.backends': list(backends)})
    return Exporter(cfg, str(weights), folder, samples=False, diagnose=diagnose, reference=reference)


def _facts(report: Report) -> dict[str, Any]:
    rules = report.plan.rules if report.plan else None
    shapes = list(report.inputs.values())
    return dict(task=report.task, traced=list(shapes[0][2:]) if shapes else None, inputs=len(shapes),
                smallest=[min(shape[axis] for shape in shapes) for axis in (0, 2, 3)],
                largest=[max(shape[axis] for shape in shapes) for axis in (0, 2, 3)],
                multiple_of=rules.multiple_of if rules else 1, fixed=bool(rules and rules.fixed))


def _result(report: Report, backend: str) -> Result:
    from ..checker.comparison import EAGER
    if backend in report.failures:
        return dict(passed=False, reason=report.failures[backend])
    artifact, check = next((a, c) for a, c in zip(report.artifacts, report.checks, strict=True) if a.backend == backend)
    passed = bool(report.passed_in(backend))
    rows = [row for row in check.rows if row.stage == EAGER]
    agreement = [row.metrics['pixel_agreement'] for row in rows if 'pixel_agreement' in row.metrics]
    return dict(passed=passed, reason=None if passed else f'{backend}: {check.reason}' if check.reason else '; '.join(report.reasons),
                worst=max((row.max_rel for row in rows if row.max_rel is not None), default=None),
                differs=1 - min(agreement) if agreement else None, floor=max((row.floor for row in rows), default=0.0),
                bytes=artifact.manifest['bytes'], over_eager=check.over_eager)


def _rows(job: Job, results: dict[str, dict[str, Result]], facts: dict[str, Any], started: float) -> list[dict[str, Any]]:
    shared = {name: fact for name, fact in facts.items() if name != 'diagnoses'}
    return [job.row(backend, complete=True, passed=all(result['passed'] for result in of.values()),
                    reason='; '.join(f'{outputs}: {result["reason"]}' for outputs, result in of.items() if not result['passed']) or None,
                    **shared, **of, **facts.get('diagnoses', {}).get(backend, {}), seconds=_since(started))
            for backend, of in results.items()]


def _since(started: float) -> float:
    return round(time.perf_counter() - started, 1)


def end_with_the_worker() -> None:
    """End this job when its worker is killed, which cannot do that itself."""
    worker = os.getppid()

    def watch() -> None:
        while os.getppid() == worker:
            time.sleep(1)
        # The process group of the job, see `work`: the processes that it has started too.
        os.killpg(0, signal.SIGKILL)

    if os.getpgrp() == os.getpid():
        Thread(target=watch, daemon=True).start()


if __name__ == '__main__':
    end_with_the_worker()
    sys.exit(main())
