"""Run a job in a subprocess with limits of time and memory; retry once if it crashes."""
from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .plan import Job

PR_SET_PDEATHSIG = 1
ROOT = Path(__file__).resolve().parents[2]


def work(spec: dict[str, Any], weights: str, limit_s: float, limit_gb: float) -> list[dict[str, Any]]:
    """Return the rows of the job, one a format; those of a process that died say how it ended, after two tries.

    A job that runs out of time keeps what it had found by then.
    """
    started = time.perf_counter()
    reason = ''
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            place, out = Path(folder) / 'job.json', Path(folder) / 'rows.json'
            place.write_text(json.dumps(spec))
            code = _run([sys.executable, '-W', 'ignore', '-m', 'mmexport.sweep.job', str(place), weights, str(out)], limit_s, limit_gb)
            rows = json.loads(out.read_text()) if out.is_file() else []
        if code is None:
            return _ended(spec, rows, f'not done in {limit_s:.0f} s', started, limit_s, limit_gb)
        if rows and all(row['complete'] for row in rows):
            return list(rows)
        reason = f'its process died with code {code}, twice (a limit of {limit_gb:g} GB is set)'
    return _ended(spec, rows, reason, started, limit_s, limit_gb)


def _ended(spec: dict[str, Any], rows: list[dict[str, Any]], reason: str, started: float, limit_s: float, limit_gb: float,
           ) -> list[dict[str, Any]]:
    """Return complete rows unchanged, and the others as failed for `reason`."""
    by_format = {row['backend']: row for row in rows}
    last = dict(complete=True, passed=False, limits=[limit_s, limit_gb], seconds=round(time.perf_counter() - started, 1))
    return [row if row.get('complete') else {**row, **last, 'reason': '; '.join(filter(None, (row.get('reason'), reason)))}
            for row in (by_format.get(backend, Job.from_dict(spec).row(backend)) for backend in spec['backends'])]


def _run(command: list[str], limit_s: float, limit_gb: float) -> int | None:
    """Return the exit code, None after the time limit; end the whole process group."""
    def limit() -> None:
        size = int(limit_gb * 1e9)
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))
        if sys.platform == 'linux':
            # A worker that is killed takes its job with it: nothing else would stop the job at its limit.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get('PYTHONPATH'))))
    env = {**os.environ, 'PYTHONPATH': path, 'OMP_NUM_THREADS': '1', 'MKL_NUM_THREADS': '1'}
    child = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                             preexec_fn=limit)
    try:
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
