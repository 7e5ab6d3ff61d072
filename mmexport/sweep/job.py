"""One job in a process of its own: ``python -m mmexport.sweep.job JOB.json WEIGHTS.pth OUT.json``."""
from __future__ import annotations

import json
import logging
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from ..errors import InputError, LoweringError, MMExportError, first_line, last_line
from .plan import Job, path_of

if TYPE_CHECKING:
    from mmengine.config import Config

    from ..report import Report


def main(argv: Sequence[str] | None = None) -> int:
    spec, weights, out = sys.argv[1:] if argv is None else argv
    logging.disable(logging.WARNING)
    warnings.filterwarnings('ignore')
    content = json.loads(Path(spec).read_text())
    job = Job(content['config'], content['backend'], tuple(content['size']), tuple(content['other']))
    row = run(job, Path(weights))
    Path(out).write_text(json.dumps(row))
    if not row['passed'] and row.get('traced'):
        # The row is safe; a diagnosis may take the rest of the time.
        row.update(diagnosed(job, row, Path(weights), Path(weights).parents[1] / 'repros'))
        draft = Path(f'{out}.draft')
        draft.write_text(json.dumps(row))
        draft.replace(out)
    return 0


def run(job: Job, weights: Path) -> dict[str, Any]:
    """The row of `job`; what fails is a row with the reason."""
    started = time.perf_counter()
    try:
        row = _exported(job, weights)
    except MMExportError as exc:
        row = dict(passed=False, reason=f'{type(exc).__name__}: {first_line(exc)}')
        if isinstance(exc, LoweringError):
            row.update(traced=list(job.size), checked=list(job.other))
    except Exception as exc:  # Upstream may raise anything while a model is built; in a sweep that is a row.
        row = dict(passed=False, reason=f'{type(exc).__name__}: {last_line(exc)}')
    return dict(**job.as_dict(), **row, seconds=round(time.perf_counter() - started, 1))


def diagnosed(job: Job, row: dict[str, Any], weights: Path, repros: Path) -> dict[str, Any]:
    """Why `row` failed, from a second run that looks for it, and the name of the repro in `repros` where there is one."""
    from ..config import load_config
    from ..exporter import Exporter
    own = row['checked'] is None
    cfg = _merged(load_config(path_of(job.config)), job.backend, tuple(row['traced']), None if own else job.other)
    with tempfile.TemporaryDirectory() as folder:
        exporter = Exporter(cfg, str(weights.with_suffix('.own.pth') if own else weights), folder, samples=False)
        with suppress(MMExportError):  # That it fails is known.
            exporter.run()
        repro, place = Path(folder) / 'failed' / f'repro_{job.backend}.py', repros / f'{job.name}_{job.backend}.py'
        # The line of the repro says whether it fails alone, too.
        lines = [line.replace(f'failed/{repro.name}', f'repros/{place.name}') for line in exporter.consultation.lines()]
        if not repro.is_file():
            return dict(diagnosis=lines)
        repros.mkdir(parents=True, exist_ok=True)
        place.write_text(repro.read_text())
    return dict(diagnosis=lines, repro=f'repros/{place.name}')


def _exported(job: Job, weights: Path) -> dict[str, Any]:
    from ..compat import check_packages
    from ..config import load_config
    check_packages()
    cfg = load_config(path_of(job.config))
    try:
        return _at(cfg, job, weights, job.size, job.other)
    except InputError as exc:
        # Some models take one size only: their own.
        own = _own_size(cfg)
        if own is None or 'eager' not in str(exc):
            raise
        return _at(cfg, job, weights.with_suffix('.own.pth'), own, None)


def _at(cfg: Config, job: Job, weights: Path, size: tuple[int, int], other: tuple[int, int] | None) -> dict[str, Any]:
    import torch

    from ..exporter import Exporter
    from ..screening import eager_in_words
    from ..seeding.checkpoint import write_checkpoint
    cfg = _merged(cfg, job.backend, size, other)
    if not weights.is_file():
        # Once for all formats; two that begin together write the same, and in one step.
        with eager_in_words({'seeding': torch.empty(1, 3, *size)}):
            write_checkpoint(cfg, weights)
    with tempfile.TemporaryDirectory() as folder:
        report = Exporter(cfg, str(weights), folder, samples=False, diagnose=False).run()
        return _row(report, size, other)


def _merged(cfg: Config, backend: str, size: tuple[int, ...], other: tuple[int, int] | None) -> Config:
    dynamic = ('batch', 'height', 'width') if other else ('batch',)
    cfg.merge_from_dict({'export.outputs': 'raw', 'export.backends': [backend], 'export.inputs': dict(shape=size, dynamic=dynamic),
                         'export.verify': dict(shapes=[other] if other else [], batch=2)})
    return cfg


def _row(report: Report, size: tuple[int, int], other: tuple[int, int] | None) -> dict[str, Any]:
    from ..checking.main import EAGER
    artifact, check = report.artifacts[0], report.checks[0]
    worst: dict[str, float] = {}
    for row in check.rows:
        if row.stage == EAGER and row.max_rel is not None:
            worst[row.sample] = max(worst.get(row.sample, 0.0), row.max_rel)
    return dict(passed=bool(report.passed), reason=None if report.passed else '; '.join(report.reasons), task=report.task, worst=worst,
                floor=max((row.floor for row in check.rows), default=0.0), traced=list(size), checked=list(other) if other else None,
                bytes=artifact.manifest['bytes'], over_eager=check.over_eager)


def _own_size(cfg: Config) -> tuple[int, int] | None:
    size = cfg.model.get('test_cfg', {}).get('crop_size') or cfg.get('crop_size')
    return (int(size[0]), int(size[1])) if size else None


def end_with_the_worker() -> None:
    """A worker that is killed cannot end its job, which would go on beside the one that takes its place."""
    worker = os.getppid()

    def watch() -> None:
        while os.getppid() == worker:
            time.sleep(1)
        # Of the job's own session, see `work`: the processes that it has started too.
        os.killpg(0, signal.SIGKILL)

    if os.getpgrp() == os.getpid():
        Thread(target=watch, daemon=True).start()


if __name__ == '__main__':
    end_with_the_worker()
    sys.exit(main())
