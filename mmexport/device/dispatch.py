"""Record every ``aten`` operator of a TorchScript file while it runs. The devices that it names are recorded with it."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ..compat.pytree import tree_leaves, tree_map
from .findings import Finding, Place
from .literals import Literal
from .rules import COPIES, FACTORIES, METADATA_ONLY, in_place

READS = frozenset({'index', '_unsafe_index'})
INDEX = READS | {'index_put', 'index_put_', '_index_put_impl_'}


class Dispatched(TorchDispatchMode):
    """Tag tensors by dispatch: 'home' is the device of input and weights; a number is the device literal of a tensor."""

    def __init__(self, marked: Sequence[Literal]) -> None:
        super().__init__()
        self.marked = marked
        self.away: dict[int, tuple[Tensor, int]] = {}
        self.findings: dict[int, Finding] = {}
        self.ops = 0
        self._unnamed: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ops += 1
        kwargs = dict(kwargs or {})
        name = func.overloadpacket.__name__
        device = kwargs.get('device')
        if isinstance(device, torch.device):
            kwargs['device'] = torch.device('cpu')
        args = tree_map(lambda value: torch.device('cpu') if isinstance(value, torch.device) else value, args)
        tensors = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        mark = self._mark_of_result(func, name, device, tensors)
        result = func(*args, **kwargs)
        for value in tree_leaves(result):
            if isinstance(value, Tensor):
                self._note(value, mark)
        return result

    def _note(self, tensor: Tensor, mark: int | None) -> None:
        if mark is None:
            self.away.pop(id(tensor), None)
        else:
            # Held, so that its id stays its own.
            self.away[id(tensor)] = (tensor, mark)

    def _mark_of(self, tensor: Tensor) -> int | None:
        return self.away[id(tensor)][1] if id(tensor) in self.away else None

    def _mark_of_result(self, func: Any, name: str, device: torch.device | None, tensors: Sequence[Tensor]) -> int | None:
        if device is not None:
            return device.index if device.index is not None and device.index < len(self.marked) else None
        if not tensors or name in FACTORIES:
            return self._unnamed.setdefault(name, -1 - len(self._unnamed))
        marks = [self._mark_of(tensor) for tensor in tensors]
        return marks[0] if len(set(marks)) == 1 else self._mixed(func, name, tensors, marks)

    def _mixed(self, func: Any, name: str, tensors: Sequence[Tensor], marks: Sequence[int | None]) -> int | None:
        if name in METADATA_ONLY or name in COPIES:
            return marks[0]
        away = [(tensor, mark) for tensor, mark in zip(tensors, marks, strict=True) if mark is not None]
        if name in INDEX and marks[0] is None:
            # Indices may lie on the CPU; what is put there, the last tensor, may not.
            puts = name not in READS
            away = [(tensor, mark) for tensor, mark in away if puts and tensor is tensors[-1] and tensor.dim() > 0]
        elif torch.Tag.pointwise in func.tags and all(tensor.dim() == 0 for tensor, _ in away):
            return marks[0] if in_place(name) else None
        if away:
            self._report(name, away[0][1])
        return None

    def _report(self, name: str, number: int) -> None:
        if number in self.findings:
            return
        if number >= 0:
            literal = self.marked[number]
            self.findings[number] = Finding(literal.kind, literal.words, literal.place, f'aten::{name}', Place())
        else:
            made_by = next(op for op, factory_mark in self._unnamed.items() if factory_mark == number)
            self.findings[number] = Finding('factory', f'aten::{made_by} without a device', Place(), f'aten::{name}', Place())
