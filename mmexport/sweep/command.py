"""``tools/sweep.py``."""
from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

from ..backends import build_backend, installed_backends
from ..compat import check_packages
from ..model import versions
from .document import write
from .plan import jobs
from .run import sweep
from .store import Store


def run(args: argparse.Namespace) -> int:
    """Exit code 0: every row passes; 1: some do not, see the table."""
    check_packages()
    backends = installed_backends() if args.backend == ['all'] else args.backend
    for name in backends:
        build_backend(name)
    out = Path(args.out)
    todo = jobs(args.packages, backends, tuple(args.size), args.match)
    store = Store(out / 'done.sqlite', dict(versions(), commit=args.commit or _commit()))
    if args.known:
        print(f'{store.take(json.loads(Path(args.known).read_text()))} rows taken from {args.known}')
    try:
        made = sweep(todo, store, out.resolve(), address=args.address, workers=args.workers, limit_s=args.limit, limit_gb=args.memory,
                     told=_say)
        rows = store.rows()
    except KeyboardInterrupt:
        print(f'interrupted; {len(store.rows())} rows are in {out / "done.sqlite"}, and the same command goes on from there')
        return 130
    finally:
        store.close()
    write(rows, out / 'zoo.json', out / 'zoo.md')
    print(f'{made} rows made, {len(rows)} in {out / "zoo.md"}')
    return 0 if all(row['passed'] for row in rows) else 1


def _say(row: dict[str, Any], done: int, of: int) -> None:
    print(f"{done:>4}/{of} {row['config']:<72}{row['backend']:<14}{'pass' if row['passed'] else str(row['reason'])[:90]}", flush=True)


def _commit() -> str:
    from .. import __version__
    asked = subprocess.run(['git', 'describe', '--always', '--dirty'], cwd=Path(__file__).parent, capture_output=True, text=True,
                           check=False)
    return asked.stdout.strip() or f'mmexport {__version__}'
