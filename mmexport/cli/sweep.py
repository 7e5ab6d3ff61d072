"""Run ``tools/sweep.py``."""
from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

from .. import __version__
from ..backends import build_backend, named_backends
from ..compat import check_packages
from ..model.build import versions
from ..sweep.document import write
from ..sweep.plan import jobs
from ..sweep.run import sweep
from ..sweep.store import Store


def run(args: argparse.Namespace) -> int:
    """Sweep; exit code 0 if every row passes, 1 if some do not, see the table."""
    check_packages()
    backends = named_backends(args.backend)
    for name in backends:
        build_backend(name)
    out = Path(args.out)
    todo = jobs(args.packages, backends, tuple(args.shape) if args.shape else None, args.match,
                [str(Path(image).resolve()) for image in args.image])
    store = Store(out / 'done.sqlite', dict(versions(), commit=args.commit or _commit()))
    if args.known:
        print(f'{store.take(json.loads(Path(args.known).read_text()))} rows taken from {args.known}')
    try:
        made = sweep(todo, store, out.resolve(), address=args.address, workers=args.workers, limit_s=args.limit, limit_gb=args.memory,
                     told=_say, again=args.again)
        rows, asked = store.rows(), [store.row(job.row(backend)) for job in todo for backend in job.backends]
    except KeyboardInterrupt:
        print(f'interrupted; {len(store.rows())} rows are in {out / "done.sqlite"}, and the same command goes on from there')
        return 130
    finally:
        store.close()
    write(rows, out / 'zoo.json', out / 'zoo.md')
    print(f'{made} rows made, {len(rows)} in {out / "zoo.md"}')
    lost = asked.count(None)
    if lost:
        print(f'{lost} rows of {len(asked)} are missing: their workers were lost. The same command makes them')
    return 0 if all(row is not None and row['passed'] for row in asked) else 1


def _say(row: dict[str, Any], done: int, of: int) -> None:
    print(f"{done:>4}/{of} {row['config']:<72}{row['backend']:<14}{'pass' if row['passed'] else str(row['reason'])[:90]}", flush=True)


def _commit() -> str:
    """Return the commit of mmexport's repository with uncommitted changes; the version if it is installed without one."""
    root = Path(__file__).parents[2]
    top = _git(root, 'rev-parse', '--show-toplevel')
    if not top or Path(top).resolve() != root.resolve():
        return f'mmexport {__version__}'
    # A patch that is in no commit yet is on all the same.
    new = _git(root, 'ls-files', '--others', '--exclude-standard', 'mmexport', 'patches').split()
    changed = _git(root, 'diff', 'HEAD') + ''.join(f'{name} {(root / name).read_text(errors="replace")}' for name in new)
    return _git(root, 'describe', '--always') + (f'-dirty-{hashlib.sha256(changed.encode()).hexdigest()[:8]}' if changed else '')


def _git(root: Path, *command: str) -> str:
    try:
        return subprocess.run(['git', *command], cwd=root, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ''
