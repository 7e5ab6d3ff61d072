"""Measure what an export costs beyond the forward passes of its checks: python benchmarks/export_time.py --config pspnet --backend onnx.

Forward passes are eager's, the patched model's, the one that the device audit watches (what a plain one takes, made right after it and
not counted), and the file's own in the checking process; all else is ours or torch's. `upstream_s` is the time inside of torch's own
exporters (`UPSTREAM`), with the code of the model and of our patches that they run. A machine's speed changes from minute to
minute: the bound is for the median of several exports.
"""
from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

from common import CONFIGS, ROOT, python, quiet, tool, write
from rounds import Others

UPSTREAM = ('torch.export.export', 'torch.onnx.export', 'torch.jit.trace', 'torch.jit.freeze')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--config', default='pspnet')
    parser.add_argument('--backend', default='onnx')
    parser.add_argument('--size', nargs=2, type=int, default=(512, 1024))
    parser.add_argument('--rounds', type=int, default=1, help='exports, each in a process of its own: imports count')
    parser.add_argument('--bound', type=float, help='seconds beyond forward passes; more is exit code 1')
    parser.add_argument('--out', type=Path, default=ROOT / 'benchmarks' / 'results' / 'export_time.json')
    args = parser.parse_args()
    quiet()
    rows: list[dict[str, Any]] = []
    for _ in range(args.rounds):
        rows.append(row := one_round(args) if args.rounds == 1 else in_a_process(args))
        write(args.out, rows, size=list(args.size))
        print(f"{row['config']} to {row['backend']}: {row['beyond_s']:.1f} s beyond {row['forward_s']:.1f} s of forward passes", flush=True)
    median = statistics.median(row['beyond_s'] for row in rows)
    print(f'median {median:.1f} s')
    return 0 if all(row['passed'] for row in rows) and (args.bound is None or median <= args.bound) else 1


def one_round(args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return measure(args.config, args.backend, tuple(args.size), Path(folder))


def in_a_process(args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / 'row.json'
        ran = python(Path(__file__), '--config', args.config, '--backend', args.backend, '--size', *args.size, '--out', out)
        if not out.is_file():
            raise SystemExit(ran.stderr[-2000:])
        row: dict[str, Any] = json.loads(out.read_text())['rows'][0]
        return row


def counted(target: str, seconds: dict[str, float]) -> Any:
    """Return the function at `target`, which adds the time of its calls to `seconds`."""
    module, _, name = target.rpartition('.')
    function = getattr(import_module(module), name)

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            seconds[target] = seconds.get(target, 0.0) + time.perf_counter() - started
    return run


def measure(name: str, backend: str, size: tuple[int, ...], folder: Path) -> dict[str, Any]:
    import torch

    from mmexport import Exporter
    from mmexport.checker.timing import CALLS, ENOUGH
    from mmexport.model.config import load_config
    from mmexport.utils.progress import RUNNING

    class Watched(Exporter):
        """Time a plain pass of the network right after the one that the device audit watches."""

        plain_s = 0.0

        def _audit(self, adapter: Any, image: torch.Tensor) -> Any:
            actual = super()._audit(adapter, image)
            called = time.perf_counter()
            with torch.no_grad():
                adapter(image)
            self.plain_s = time.perf_counter() - called
            return actual

    made = tool('make_checkpoint', CONFIGS / f'{name}.py', folder / 'c.pth')
    if made.returncode:
        raise SystemExit(made.stderr[-2000:])
    cfg = load_config(CONFIGS / f'{name}.py')
    cfg.merge_from_dict({'export.backends': [backend], 'export.inputs': dict(shape=size), 'export.outputs': 'raw'})
    exporter = Watched(cfg, str(folder / 'c.pth'), folder / 'w')
    upstream: dict[str, float] = {}
    others, started = Others(), time.perf_counter()
    with ExitStack() as stack:
        for target in UPSTREAM:
            stack.enter_context(mock.patch(target, counted(target, upstream)))
        report, = exporter.run()
    total, busy = time.perf_counter() - started - exporter.plain_s, others.load()
    actual = report.checks[0].result or {}
    running = report.time_by_kind[RUNNING]
    # The calls that the checker times, its last call of the last sample, and its last look at the first.
    timed = actual['p50_s'] * (min(CALLS, math.ceil(ENOUGH / actual['p50_s'])) + 1) + actual['last_s']
    eager = report.checks[0].eager_s or 0
    typical = eager * min(CALLS, math.ceil(ENOUGH / (eager or 1)))
    watched = min(exporter.plain_s, report.audit.seconds)
    forward = running + watched + actual['run_s'] + timed + typical
    return dict(config=name, backend=backend, passed=report.passed, total_s=total, forward_s=forward, beyond_s=total - forward,
                upstream_s=upstream, steps=dict(report.seconds), plain_s=exporter.plain_s, load_s=actual['load_s'], others=busy)


if __name__ == '__main__':
    sys.exit(main())
