"""Measure how much faster two workers of a sweep are than one: eight jobs, one thread each, subprocesses included, Ray's start not.

    python benchmarks/sweep_rate.py --out benchmarks/results/sweep_rate.json
"""
from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import quiet, write
from rounds import BUSY, Others

CONFIGS = ('erfnet/erfnet_fcn_4xb4-160k_cityscapes-512x1024', 'fastscnn/fast_scnn_8xb4-160k_cityscapes-512x1024',
           'cgnet/cgnet_fcn_4xb4-60k_cityscapes-680x680', 'bisenetv2/bisenetv2_fcn_4xb4-160k_cityscapes-1024x1024')
SIZES = ((128, 160), (160, 160))
ENOUGH = 1.6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--out', type=Path, required=True)
    args = parser.parse_args()
    quiet()
    busy = resting()
    with tempfile.TemporaryDirectory() as folder:
        seconds(2, Path(folder), 'seeding')  # Writes the weights, which both then find.
        # Of two times each, in turn, the best: what disturbs only ever adds.
        times: dict[int, list[float]] = {1: [], 2: []}
        for number in range(2):
            for workers in times:
                times[workers].append(seconds(workers, Path(folder), f'{workers} {number}'))
                print(f'{workers} workers: {times[workers][-1]:.1f} s', flush=True)
    others, ratio = max(busy, resting()), min(times[1]) / min(times[2])
    rows: list[dict[str, Any]] = [dict(workers=workers, seconds=actual) for workers, actual in times.items()]
    if others > BUSY:
        print(f'not run: machine busy (others keep {others:.1f} cores)')
        return 3
    write(args.out, rows, jobs=len(CONFIGS) * len(SIZES), ratio=ratio, others=others)
    print(f'two workers are {ratio:.2f} times as fast as one')
    return 0 if ratio >= ENOUGH else 1


def resting() -> float:
    """Measure the cores that others keep busy while this does nothing: before and after, since a sweep's own processes are others too."""
    others = Others()
    time.sleep(5)
    return others.load() or 0.0


def seconds(workers: int, folder: Path, name: str) -> float:
    """Return seconds from the first job's start to the last one's row; every row must pass."""
    os.environ['RAY_USAGE_STATS_ENABLED'] = '0'
    import ray

    from mmexport.sweep.plan import Job
    from mmexport.sweep.run import sweep
    from mmexport.sweep.store import Store
    jobs = [Job(f'mmseg::{config}.py', ('torchscript',), size) for config in CONFIGS for size in SIZES]
    store, ends = Store(folder / f'{name}.sqlite', {}), []
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    ray.get([ray.remote(lambda: time.sleep(1)).remote() for _ in range(2 * workers)])
    started = time.perf_counter()
    sweep(jobs, store, folder, workers=workers, told=lambda row, done, of: ends.append(time.perf_counter()))
    failed = [row for row in store.rows() if not row['passed']]
    store.close()
    if failed or len(ends) != len(jobs):
        raise SystemExit(f'not a measure: {failed[:1] or len(ends)}')
    return ends[-1] - started


if __name__ == '__main__':
    sys.exit(main())
