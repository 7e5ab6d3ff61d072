"""Run the network of one adapter once for each input and condition. Its branches are recorded."""
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
from ..utils.randomness import fixed_seed
from .noise_floor import NearThresholdCounter

Outputs = tuple[tuple[Tensor, ...], dict[str, Tensor]]


class NetworkRuns:
    """Hold the network's outputs while one reference is computed.

    Attributes:
        outputs: outputs and evidence by name, condition (eager, patched, a noise) and content of the inputs.
        near_thresholds: how many comparisons inside eager were near their threshold, likewise.
        branches: of each sample the branches of its last run.
        note: why branches are not recorded, or None.
    """

    def __init__(self) -> None:
        self.outputs: dict[tuple[Any, ...], Outputs] = {}
        self.near_thresholds: dict[tuple[Any, ...], int] = {}
        self.runs: dict[tuple[Any, ...], BranchRun] = {}
        self.branches: dict[str, BranchRun] = {}
        self.note: str | None = None

    def run(self, adapter: Adapter, name: str, when: str, *inputs: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """Return the network's outputs and evidence on the sample `name`. An earlier run is reused."""
        key = _key(name, when, *inputs, *adapter.followed.values())
        if key not in self.outputs:
            first, plain = not self.runs, _copies(inputs)
            with torch.no_grad(), NearThresholdCounter() if when == 'eager' else nullcontext() as counter:
                outputs, run = self._recorded(adapter, inputs) if when == 'eager' else (_run(adapter, inputs), BranchRun())
            if when == 'eager' and first and self.note is None:
                # Outside of the count: what is compared is whether recording changes anything.
                with torch.no_grad():
                    again = _run(adapter, plain)
                if not all(map(torch.equal, outputs[0], again[0])):
                    self.note, outputs, run = 'the model answers otherwise while its branches are recorded', again, BranchRun()
            self.outputs[key], self.runs[key] = outputs, run
            self.near_thresholds[key] = counter.count if counter else 0
        if when == 'eager':
            self.branches[name] = self.runs[key]
        return self.outputs[key]

    def count_near_thresholds(self, adapter: Adapter, name: str, *inputs: Tensor) -> int:
        """Return how many comparisons inside eager are near their threshold on `inputs`."""
        # Before the model may write into them.
        key = _key(name, 'eager', *inputs, *adapter.followed.values())
        self.run(adapter, name, 'eager', *inputs)
        return self.near_thresholds[key]

    def _recorded(self, adapter: Adapter, inputs: Sequence[Tensor]) -> tuple[Outputs, BranchRun]:
        """Run the model with its branches recorded, or without where that fails."""
        run, plain = BranchRun(), _copies(inputs)
        if self.note is None:
            try:
                with recorded(run, *inputs):
                    return _run(adapter, inputs), run
            except Exception as exc:  # Of the recorder or of the model; where the plain run raises too, it is the model.
                outputs = _run(adapter, plain)
                self.note = f'{type(exc).__name__}: {last_line(exc)}'
                return outputs, BranchRun()
        return _run(adapter, plain), BranchRun()


def _key(name: str, when: str, *inputs: Tensor) -> tuple[Any, ...]:
    digest = hashlib.sha256()
    for tensor in inputs:
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    return name, when, tuple(tuple(tensor.shape) for tensor in inputs), digest.hexdigest()


def _copies(inputs: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.clone() for tensor in inputs]


def _run(adapter: Adapter, inputs: Sequence[Tensor]) -> Outputs:
    """Run the network with the same random numbers every time."""
    with fixed_seed():
        return adapter.run_with_evidence(*inputs)
