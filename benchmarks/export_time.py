"""What an export costs beyond the forward passes of its checks: python benchmarks/export_time.py --config pspnet --backend onnx.

Forward passes are eager's, the patched model's, the one that the device audit watches, and the file's own in the checking process; all
else is ours or the exporter's.
"""
from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import CONFIGS, ROOT, quiet, tool, write
from rounds import Others


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--config', default='pspnet')
    parser.add_argument('--backend', default='onnx')
    parser.add_argument('--size', nargs=2, type=int, default=(512, 1024))
    parser.add_argument('--bound', type=float, help='seconds beyond forward passes; more is exit code 1')
    parser.add_argument('--out', type=Path, default=ROOT / 'benchmarks' / 'results' / 'export_time.json')
    args = parser.parse_args()
    quiet()
    with tempfile.TemporaryDirectory() as folder:
        row = measure(args.config, args.backend, tuple(args.size), Path(folder))
    write(args.out, [row], size=list(args.size))
    print(f"{row['config']} to {row['backend']}: {row['beyond_s']:.1f} s beyond {row['forward_s']:.1f} s of forward passes")
    return 0 if row['passed'] and (args.bound is None or row['beyond_s'] <= args.bound) else 1


def measure(name: str, backend: str, size: tuple[int, ...], folder: Path) -> dict[str, Any]:
    from mmexport import Exporter
    from mmexport.checking.timing import CALLS, ENOUGH
    from mmexport.config import load_config
    made = tool('make_checkpoint', CONFIGS / f'{name}.py', folder / 'c.pth')
    if made.returncode:
        raise SystemExit(made.stderr[-2000:])
    cfg = load_config(CONFIGS / f'{name}.py')
    cfg.merge_from_dict({'export.backends': [backend], 'export.inputs': dict(shape=size), 'export.outputs': 'raw'})
    others, started = Others(), time.perf_counter()
    report = Exporter(cfg, str(folder / 'c.pth'), folder / 'w').run()
    total, busy = time.perf_counter() - started, others.load()
    found = report.checks[0].found or {}
    running = sum(seconds for step, seconds in report.seconds.items() if step.startswith('Running'))
    # The calls that the checker times, its last call of the last sample, and its last look at the first.
    timed = found['p50_s'] * (min(CALLS, math.ceil(ENOUGH / found['p50_s'])) + 1) + found['last_s']
    eager = report.checks[0].eager_s or 0
    typical = eager * min(CALLS, math.ceil(ENOUGH / (eager or 1)))
    watched = min(eager, next(seconds for step, seconds in report.seconds.items() if step.startswith('Looking')))
    forward = running + watched + found['run_s'] + timed + typical
    return dict(config=name, backend=backend, passed=report.passed, total_s=total, forward_s=forward, beyond_s=total - forward,
                steps=dict(report.seconds), load_s=found['load_s'], others=busy)


if __name__ == '__main__':
    sys.exit(main())
