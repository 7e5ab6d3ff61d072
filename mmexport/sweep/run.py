"""Run the sweep: jobs on Ray's workers, rows into the store as they finish."""
from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import SetupError, first_line
from .plan import Job
from .store import Store
from .work import work

OnRow = Callable[[dict[str, Any], int, int], None]


def sweep(todo: Sequence[Job], store: Store, folder: Path, *, address: str | None = None, workers: int | None = None,
          limit_s: float = 3600, limit_gb: float = 10, on_row: OnRow = lambda row, done, all_: None,
          run_job: Callable[..., list[dict[str, Any]]] = work, again: bool = False) -> int:
    """Run the jobs without rows in the store, and return how many rows were made; interrupted, it can be resumed.

    Args:
        folder: where the seeded weights lie; every machine of a cluster must see it.
        address: of a Ray cluster; None starts one here, with `workers` of one core each.
        run_job: makes the rows of a job, one a format, on a worker.
        again: do what failed once more. What ran out of time or memory is, without that, where there is more of it now.
        on_row: is called with each row, the number of rows done and the number of all.
    """
    missing = [job for job in (_what_is_missing(job, store, limit_s, limit_gb, again) for job in todo) if job.backends]
    count = sum(len(job.backends) for job in todo)
    done = count - sum(len(job.backends) for job in missing)
    stored = 0
    if not missing:
        return stored
    with _ray(address, workers) as ray:
        # A worker that is killed is started again, once; what a job's own process does is the business of `work`.
        remote = ray.remote(num_cpus=1, max_retries=1, retry_exceptions=False)(run_job)
        waiting = {remote.remote(job.as_dict(), str(weights_of(job, folder)), limit_s, limit_gb): job for job in missing}
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1)
            job = waiting.pop(ready[0])
            lost = False
            try:
                rows = ray.get(ready[0])
            except ray.exceptions.RayTaskError as exc:
                rows = job.rows(passed=False, reason=f'{type(exc.cause).__name__}: {first_line(exc)}')
            except ray.exceptions.RayError as exc:
                # This says nothing about the job: it is reported, not stored, and the next call runs it again.
                lost = True
                rows = job.rows(passed=False, reason=f'its worker was lost twice: {type(exc).__name__}; run the sweep again')
            for row in rows:
                done += 1
                if not lost:
                    store.keep(row)
                    stored += 1
                on_row(row, done, count)
    return stored


def _what_is_missing(job: Job, store: Store, limit_s: float, limit_gb: float, again: bool) -> Job:
    """Return `job` with the formats of which the store has no valid row."""
    return replace(job, backends=tuple(backend for backend in job.backends
                                       if _is_missing(store.row(job.row(backend)), limit_s, limit_gb, again)))


def _is_missing(row: dict[str, Any] | None, limit_s: float, limit_gb: float, again: bool) -> bool:
    if row is None or row['passed']:
        return row is None
    limits = row.get('limits')
    return again or (limits is not None and (limit_s > limits[0] or limit_gb > limits[1]))


def weights_of(job: Job, folder: Path) -> Path:
    size = 'x'.join(map(str, job.shape)) if job.shape else 'default'
    return folder / 'weights' / f'{_seeds()}_{job.name}_{size}.pth'


@cache
def _seeds() -> str:
    """Return the hash of the seeding code: other code, other weights."""
    sources = sorted((Path(__file__).parents[1] / 'seeding').glob('*.py'))
    return hashlib.sha256(b''.join(source.read_bytes() for source in sources)).hexdigest()[:8]


@contextmanager
def _ray(address: str | None, workers: int | None) -> Iterator[Any]:
    os.environ.setdefault('RAY_USAGE_STATS_ENABLED', '0')
    # A busy machine takes its time to start one.
    os.environ.setdefault('RAY_raylet_start_wait_time_s', '180')
    try:
        import ray
    except ImportError as exc:
        raise SetupError('a sweep needs Ray: pip install "mmexport[sweep]" or pip install "ray[default]"') from exc
    here: dict[str, Any] = {} if address else dict(num_cpus=workers or os.cpu_count(), include_dashboard=False)
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True, **here)
    try:
        yield ray
    finally:
        ray.shutdown()
