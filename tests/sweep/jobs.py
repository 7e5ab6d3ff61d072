"""Define jobs that take no time to speak of; run as a program it sweeps them and prints how many it made."""
from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from mmexport.sweep.plan import Job
from mmexport.sweep.run import sweep
from mmexport.sweep.store import Store

UNDER = dict(torch='test', commit='one')


def jobs(count: int) -> list[Job]:
    return [Job(f'mmseg::test/{number}.py', ('torchscript',)) for number in range(count)]


def noted(spec: dict[str, Any], weights: str, limit_s: float, limit_gb: float) -> list[dict[str, Any]]:
    """Leave a mark for each time that a job is begun, beside the folder of weights."""
    time.sleep(0.4)
    with (Path(weights).parents[1] / 'begun.txt').open('a') as begun:
        begun.write(f"{spec['config']}\n")
    return Job.from_dict(spec).rows(passed=True, reason=None)


def main(folder: Path, count: int, workers: int = 1) -> int:
    store = Store(folder / 'done.sqlite', UNDER)
    try:
        return sweep(jobs(count), store, folder, workers=workers, run_job=noted,
                     on_row=lambda row, done, of: print(f'{done}/{of}', flush=True))
    finally:
        store.close()


if __name__ == '__main__':
    print('made', main(Path(sys.argv[1]), int(sys.argv[2])))
