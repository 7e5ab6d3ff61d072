"""Cache network outputs, so that each model runs once per input and condition."""
from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ..adapters import Adapter
from ..branches import Run as BranchRun
from ..branches import recorded
from ..device import Audit
from ..errors import last_line
from ..utils.randomness import drawn_alike
from .noise_floor import Counted

Watched = tuple[tuple[Tensor, ...], dict[str, Tensor]]


class Memory:
    """Cache raw outputs by model, sample and condition, so that ``raw`` and ``final`` of one model share the network's runs.

    `patches` names what is on, of which two exporters may have different ones. The key of the model holds its weights: one that was
    trained further, or another model, is run again.
    """

    def __init__(self) -> None:
        self.patches = ''
        self.audits: dict[tuple[Any, ...], Audit] = {}
        self.seen: dict[tuple[Any, ...], Watched] = {}
        self.undecided: dict[tuple[Any, ...], int] = {}
        # What eager decided by sizes and values, and of each sample the last one of them; `note` says why nothing was recorded.
        self.runs: dict[tuple[Any, ...], BranchRun] = {}
        self.branches: dict[str, BranchRun] = {}
        self.note: str | None = None
        # The model itself is kept, so that its id stays its own.
        self.model: tuple[nn.Module | None, str] = (None, '')

    def bind(self, model: nn.Module) -> None:
        """Set the model of all later calls, with the weights that it has now."""
        digest = hashlib.blake2b(digest_size=16)
        for name, tensor in model.state_dict().items():
            digest.update(f'{name} {tensor.dtype} {tuple(tensor.shape)}'.encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data if tensor.numel() else b'')
        if self.model[0] is not model:
            for held in (self.seen, self.undecided, self.audits, self.runs, self.branches):
                held.clear()  # type: ignore[attr-defined]
            self.note = None
        self.model = model, digest.hexdigest()

    def watch(self, adapter: Adapter, name: str, when: str, *inputs: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        key = self._key(adapter, name, when, *inputs)
        if key not in self.seen:
            first, plain = not self.runs, _copies(inputs)
            with torch.no_grad(), Counted() if when == 'eager' else nullcontext() as counted:
                found, run = self._recorded(adapter, inputs) if when == 'eager' else (_watched(adapter, inputs), BranchRun())
            if when == 'eager' and first and self.note is None:
                # Outside of the count: what is compared is whether recording changes anything.
                with torch.no_grad():
                    again = _watched(adapter, plain)
                if not all(map(torch.equal, found[0], again[0])):
                    self.note, found, run = 'the model answers otherwise while its branches are recorded', again, BranchRun()
            self.seen[key], self.runs[key] = found, run
            self.undecided[key] = counted.undecided if counted else 0
        if when == 'eager':
            self.branches[name] = self.runs[key]
        return self.seen[key]

    def _recorded(self, adapter: Adapter, inputs: Sequence[Tensor]) -> tuple[Watched, BranchRun]:
        """Run the model with its branches recorded, or without where that fails."""
        run, plain = BranchRun(), _copies(inputs)
        if self.note is None:
            try:
                with recorded(run, *inputs):
                    return _watched(adapter, inputs), run
            except Exception as exc:  # Of the recorder or of the model; where the plain run raises too, it is the model.
                found = _watched(adapter, plain)
                self.note = f'{type(exc).__name__}: {last_line(exc)}'
                return found, BranchRun()
        return _watched(adapter, plain), BranchRun()

    def close_calls(self, adapter: Adapter, name: str, *inputs: Tensor) -> int:
        """Return how many comparisons inside eager are near their threshold on `inputs`."""
        # Before the model may write into them.
        key = self._key(adapter, name, 'eager', *inputs)
        self.watch(adapter, name, 'eager', *inputs)
        return self.undecided[key]

    def _key(self, adapter: Adapter, name: str, when: str, *inputs: Tensor) -> tuple[Any, ...]:
        if self.model[0] is not adapter.model:
            self.bind(adapter.model)
        digest = hashlib.sha256()
        for tensor in inputs:
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        return (self.model[1], type(adapter), name, when, self.patches if when == 'patched' else '',
                tuple(tuple(tensor.shape) for tensor in inputs), digest.hexdigest())


def _copies(inputs: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.clone() for tensor in inputs]


def _watched(adapter: Adapter, inputs: Sequence[Tensor]) -> Watched:
    """Run the network with the same random numbers every time."""
    with drawn_alike():
        return adapter.watch(*inputs)
