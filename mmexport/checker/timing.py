"""Measure briefly how long a call takes; benchmarks/ measures speed."""
from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

CALLS, ENOUGH = 5, 2.0


def typical(run: Callable[[], Any], device: torch.device) -> float:
    """Return the median seconds of up to five calls, fewer once two seconds are spent.

    `run` has been called before.
    """
    seconds: list[float] = []
    while len(seconds) < CALLS and sum(seconds) < ENOUGH:
        _settle(device)
        started = time.perf_counter()
        run()
        _settle(device)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def _settle(device: torch.device) -> None:
    if device.type == 'cuda':
        torch.cuda.synchronize(device)
