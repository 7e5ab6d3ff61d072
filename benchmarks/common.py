"""Provide what the benchmark scripts share: where a figure was measured, and with what."""
from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / 'configs'
sys.path.insert(0, str(ROOT))
# Asked at the start: a commit that is made while a long run goes on is not what it measures.
_HEAD = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], cwd=ROOT, capture_output=True, text=True, check=False)
COMMIT = _HEAD.stdout.strip() or None


def names() -> list[str]:
    return sorted(path.stem for path in CONFIGS.glob('*.py'))


def circumstances() -> dict[str, Any]:
    """Return command, versions, commit and machine, for the head of a results file."""
    import torch

    from mmexport.export.versions import versions
    # Where somebody keeps his files is his affair.
    command = [Path(argument).name if argument.startswith('/') else argument for argument in sys.argv]
    return dict(command=' '.join([Path(command[0]).name, *command[1:]]), commit=COMMIT, versions=versions(),
                cpu=_cpu(), cores=os.cpu_count(), platform=platform.platform(), cuda=torch.version.cuda)


def write(path: Path, rows: list[dict[str, Any]], **extra: Any) -> None:
    """Rewrite the results file; called after every row, so that an interrupted run keeps what it has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**circumstances(), **extra, 'rows': rows}, indent=1) + '\n')


def python(script: Path, *args: object) -> subprocess.CompletedProcess[str]:
    """Run a script of this repository in a process of its own."""
    return subprocess.run([sys.executable, '-W', 'ignore', str(script), *map(str, args)], capture_output=True, text=True, check=False,
                          env={**os.environ, 'PYTHONPATH': str(ROOT)})


def row_apart(script: str, name: str, limit: int, *args: object) -> dict[str, Any]:
    """Return the row that ``script --one name`` prints as its last line, from a process of its own with one thread; else the reason."""
    started = time.perf_counter()
    try:
        done = subprocess.run([sys.executable, '-W', 'ignore', script, '--one', name, *map(str, args)], capture_output=True, text=True,
                              timeout=limit, check=False, env={**os.environ, 'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1'})
    except subprocess.TimeoutExpired:
        return dict(name=name, reason=f'no result within {limit} s', commit=COMMIT)
    facts = dict(name=name, seconds=round(time.perf_counter() - started), commit=COMMIT)
    try:
        return {**facts, **json.loads(done.stdout.strip().splitlines()[-1])}
    except (IndexError, json.JSONDecodeError):
        return {**facts, 'reason': (done.stderr.strip().splitlines() or [f'exit code {done.returncode}'])[-1][:300]}


def tool(name: str, *args: object) -> subprocess.CompletedProcess[str]:
    return python(ROOT / 'tools' / f'{name}.py', *args)


def quiet() -> None:
    import logging
    import warnings
    warnings.filterwarnings('ignore')
    logging.disable(logging.WARNING)


def _cpu() -> str:
    info = Path('/proc/cpuinfo')
    lines = info.read_text().splitlines() if info.is_file() else []
    return next((line.split(':', 1)[1].strip() for line in lines if line.startswith('model name')), platform.processor())
