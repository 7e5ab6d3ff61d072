"""Check how often a call is timed."""
from __future__ import annotations

import pytest
import torch

from mmexport.checker import timing


@pytest.mark.parametrize(('seconds', 'median', 'calls'), [
    ([0.1, 0.5, 0.2, 0.4, 0.3], 0.3, 5), ([1.5, 0.4, 0.1, 9.0], 0.4, 3), ([2.0, 9.0], 2.0, 1), ([1.0, 3.0, 9.0], 2.0, 2)])
def test_typical_limits_calls_and_seconds(seconds: list[float], median: float, calls: int,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    now, made = [100.0], iter(seconds)
    monkeypatch.setattr(timing.time, 'perf_counter', lambda: now[0])
    count = []

    def run() -> None:
        count.append(1)
        now[0] += next(made)

    assert timing.typical(run, torch.device('cpu')) == pytest.approx(median)
    assert len(count) == calls


def test_typical_synchronizes_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(torch.cuda, 'synchronize', lambda device: order.append(f'wait for {device}'))
    monkeypatch.setattr(timing, 'CALLS', 1)
    timing.typical(lambda: order.append('call'), torch.device('cuda:1'))
    assert order == ['wait for cuda:1', 'call', 'wait for cuda:1']
    order.clear()
    timing.typical(lambda: order.append('call'), torch.device('cpu'))
    assert order == ['call']
