"""Export many configs of a package over Ray."""
from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ..errors import INTERRUPTED
from . import options as opt
from .completion import packages

WORK = 'Jobs'


@opt.command('sweep', ('mmexport sweep --packages mmseg --backend torchscript onnx --out zoo',),
             short_help='Export many configs of a package.')
@opt.option('--packages', group=opt.MODEL, several=True, default=('mmseg',), metavar='NAME', shell_complete=packages,
            help='mmseg, mmdet (mmseg); others of OpenMMLab are looked up, and not tried.')
@opt.option('--match', group=opt.MODEL, metavar='REGEX', help='Every config whose name has it, instead of the smallest of each folder.')
@opt.shape
@opt.images
@opt.option('--backend', group=opt.OUTPUT, several=True, default=('torchscript', 'onnx', 'torch_export', 'openvino'), metavar='NAME',
            shell_complete=opt.formats,
            help="Formats, or 'all' that are installed (torchscript onnx torch_export openvino).")
@opt.option('--out', group=opt.OUTPUT, required=True, metavar='DIR', help='Gets done.sqlite, zoo.md, zoo.json and the seeded weights.')
@opt.option('--address', group=WORK, help="Address of a Ray cluster ('auto'); without it one is started here.")
@opt.option('--workers', group=WORK, type=int, help='How many jobs at once, one core each (all cores).')
@opt.option('--limit', group=WORK, type=float, default=3600, help='Seconds for a job, which is one config in all formats (3600).')
@opt.option('--memory', group=WORK, type=float, default=10, help='GB for a job (10).')
@opt.option('--known', group=WORK, metavar='ZOO.json',
            help='Rows of an earlier sweep, on any machine: what it did under the same versions and commit is not done again.')
@opt.option('--again', group=WORK, is_flag=True,
            help='Retry what failed. What ran out of time or memory is retried anyway if --limit or --memory '
            'is larger than it was.')
@opt.option('--commit', group=WORK, help='Store the rows under this commit id (the current commit).')
@opt.debug
def command(args: SimpleNamespace) -> int:
    """Run export --outputs final raw on the configs of a package, one process a config. Exit code 0 if every row passes."""
    return run(args)


def run(args: SimpleNamespace) -> int:
    """Sweep; return 0 if every row passes, 1 if some do not, see the table."""
    from ..backends import build_backend, named_backends
    from ..compat import check_packages
    from ..export.versions import versions
    from ..sweep.document import write
    from ..sweep.plan import jobs
    from ..sweep.revision import revision
    from ..sweep.run import sweep
    from ..sweep.store import Store
    check_packages()
    backends = named_backends(args.backend)
    for name in backends:
        build_backend(name)
    out = Path(args.out)
    todo = jobs(args.packages, backends, tuple(args.shape) if args.shape else None, args.match,
                [str(Path(image).resolve()) for image in args.image])
    store = Store(out / 'done.sqlite', dict(versions(), commit=args.commit or revision()))
    if args.known:
        print(f'{store.take(json.loads(Path(args.known).read_text()))} rows taken from {args.known}')
    try:
        made = sweep(todo, store, out.resolve(), address=args.address, workers=args.workers, limit_s=args.limit, limit_gb=args.memory,
                     on_row=_say, again=args.again)
        rows, requested_rows = store.rows(), [store.row(job.row(backend)) for job in todo for backend in job.backends]
    except KeyboardInterrupt:
        print(f'interrupted; {len(store.rows())} rows are in {out / "done.sqlite"}, and the same command goes on from there')
        return INTERRUPTED
    finally:
        store.close()
    write(rows, out / 'zoo.json', out / 'zoo.md')
    print(f'{made} rows made, {len(rows)} in {out / "zoo.md"}')
    lost = requested_rows.count(None)
    if lost:
        print(f'{lost} rows of {len(requested_rows)} are missing: their workers were lost. The same command makes them')
    return 0 if all(row is not None and row['passed'] for row in requested_rows) else 1


def _say(row: dict[str, Any], done: int, of: int) -> None:
    print(f"{done:>4}/{of} {row['config']:<72}{row['backend']:<14}{'pass' if row['passed'] else str(row['reason'])[:90]}", flush=True)
