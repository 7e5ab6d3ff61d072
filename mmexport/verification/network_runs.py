"""Run the network of one adapter once for each input and condition, and record its branches."""
from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from ..adapters import Adapter
from ..branches import Run as BranchRun
from ..branches import recorded
from ..errors import last_line
from ..utils.randomness import drawn_alike
from .noise_floor import Counted

Watched = tuple[tuple[Tensor, ...], dict[str, Tensor]]


class NetworkRuns:
    """Hold the network's outputs while one reference is computed.

    Attributes:
        seen: outputs and evidence by name, condition (eager, patched, a noise) and content of the inputs.
        undecided: how many comparisons inside eager were near their threshold, likewise.
        branches: of each sample the branches of its last run.
        note: why branches are not recorded, or None.
    """

    def __init__(self) -> None:
        self.seen: dict[tuple[Any, ...], Watched] = {}
        self.undecided: dict[tuple[Any, ...], int] = {}
        self.runs: dict[tuple[Any, ...], BranchRun] = {}
        self.branches: dict[str, BranchRun] = {}
        self.note: str | None = None

    def watch(self, adapter: Adapter, name: str, when: str, *inputs: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """Return the network's outputs and evidence on the sample `name`, from an earlier run if there was one."""
        key = _key(name, when, *inputs)
        if key not in self.seen:
            first, plain = not self.runs, _copies(inputs)
            with torch.no_grad(), Counted() if when == 'eager' else nullcontext() as counted:
                watched, run = self._recorded(adapter, inputs) if when == 'eager' else (_watched(adapter, inputs), BranchRun())
            if when == 'eager' and first and self.note is None:
                # Outside of the count: what is compared is whether recording changes anything.
                with torch.no_grad():
                    again = _watched(adapter, plain)
                if not all(map(torch.equal, watched[0], again[0])):
                    self.note, watched, run = 'the model answers otherwise while its branches are recorded', again, BranchRun()
            self.seen[key], self.runs[key] = watched, run
            self.undecided[key] = counted.undecided if counted else 0
        if when == 'eager':
            self.branches[name] = self.runs[key]
        return self.seen[key]

    def close_calls(self, adapter: Adapter, name: str, *inputs: Tensor) -> int:
        """Return how many comparisons inside eager are near their threshold on `inputs`."""
        # Before the model may write into them.
        key = _key(name, 'eager', *inputs)
        self.watch(adapter, name, 'eager', *inputs)
        return self.undecided[key]

    def _recorded(self, adapter: Adapter, inputs: Sequence[Tensor]) -> tuple[Watched, BranchRun]:
        """Run the model with its branches recorded, or without where that fails."""
        run, plain = BranchRun(), _copies(inputs)
        if self.note is None:
            try:
                with recorded(run, *inputs):
                    return _watched(adapter, inputs), run
            except Exception as exc:  # Of the recorder or of the model; where the plain run raises too, it is the model.
                watched = _watched(adapter, plain)
                self.note = f'{type(exc).__name__}: {last_line(exc)}'
                return watched, BranchRun()
        return _watched(adapter, plain), BranchRun()


def _key(name: str, when: str, *inputs: Tensor) -> tuple[Any, ...]:
    digest = hashlib.sha256()
    for tensor in inputs:
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return name, when, tuple(tuple(tensor.shape) for tensor in inputs), digest.hexdigest()


def _copies(inputs: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.clone() for tensor in inputs]


def _watched(adapter: Adapter, inputs: Sequence[Tensor]) -> Watched:
    """Run the network with the same random numbers every time."""
    with drawn_alike():
        return adapter.watch(*inputs)
