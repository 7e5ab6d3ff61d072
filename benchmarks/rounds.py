"""Time contestants in turn, and measure how busy others kept the machine meanwhile."""
from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Cores that others keep busy; beyond this a figure says so.
BUSY = 0.2


def in_turn(contestants: dict[str, Callable[..., Any]], image: Any, rounds: int, clock: Callable[[], float],
            settle: Callable[[], None] = lambda: None) -> dict[str, list[float]]:
    """Return seconds of each, in rounds of all, after two calls that are not counted (the second compiles TorchScript's profile).

    Each round starts with another one: whoever follows the same neighbour always has the same caches. `settle` is called before each.
    """
    for run in contestants.values():
        run(image), run(image)
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for number in range(rounds):
        first = number % len(names)
        order = names[first:] + names[:first]
        for name in order if number // len(names) % 2 else reversed(order):
            settle()
            started = clock()
            contestants[name](image)
            seconds[name].append(clock() - started)
    return seconds


def paired(seconds: dict[str, list[float]], name: str, over: str = 'eager') -> dict[str, float]:
    """Return the time of one over that of another in the same round: median and quartiles."""
    return quartiles([one / other for one, other in zip(seconds[name], seconds[over], strict=True)])


def quartiles(values: Sequence[float]) -> dict[str, float]:
    return dict(zip(('lower quartile', 'median', 'upper quartile'), statistics.quantiles(values, n=4), strict=True))


class Others:
    """Measure the cores that other processes keep busy between two looks, from Linux's own account."""

    def __init__(self) -> None:
        self.started, self.busy, self.own = time.perf_counter(), _busy(), _own()

    def load(self) -> float | None:
        """Return cores, on average since this was made; None where the system has no such account."""
        if self.busy is None:
            return None
        seconds = time.perf_counter() - self.started
        return max(0.0, ((_busy() or 0.0) - self.busy - (_own() - self.own)) / seconds)


def _busy() -> float | None:
    place = Path('/proc/stat')
    if not place.is_file():
        return None
    user, nice, system, _idle, _wait, hard, soft, stolen = map(int, place.read_text().splitlines()[0].split()[1:9])
    # What another guest of the same host took is as much a disturbance as another process.
    return (user + nice + system + hard + soft + stolen) / os.sysconf('SC_CLK_TCK')


def _own() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
