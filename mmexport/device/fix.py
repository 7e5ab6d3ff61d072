"""Repair a model's device faults during an export, and undo the repair."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..compat.indexing import indexing_shown
from ..compat.pytree import tree_leaves, tree_map
from .findings import Audit, Finding, Place
from .tags import Tags
from .unregistered_tensors import unregistered_tensors_of

# Kinds that moving tensors and naming devices can fix; a conflict of dtypes must be decided by the author.
OUTSIDE = frozenset({'attribute', 'container', 'global', 'parameter'})
MADE_THERE = frozenset({'factory', 'literal', 'numpy'})
FIXABLE = OUTSIDE | MADE_THERE | {'cpu call'}


def fixable(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.kind in FIXABLE]


@contextmanager
def devices_fixed(model: nn.Module, audit: Audit, device: str | torch.device) -> Iterator[list[str]]:
    """Run the model inside the block as if the tensors of `audit` were on `device`.

    Tensors that ``.to()`` cannot see are moved once; factories at the lines that were found get the device; a ``.cpu()`` there gives
    back what it got. Nothing of the model is changed. Yields what was done, a line each.
    """
    findings = fixable(audit.findings)
    names = {id(module): name for name, module in model.named_modules()}
    outside = unregistered_tensors_of(model, names)
    holders = {finding.holder for finding in findings if finding.kind in OUTSIDE}
    held_tensors = {number: tensor for number, (tensor, tag) in outside.items() if tag.holder in holders}
    lines = {(finding.origin.file, finding.origin.line): finding.kind for finding in findings if finding.kind not in OUTSIDE}
    mover = _TensorMover(torch.device(device), held_tensors, lines, names)
    with _from_numpy(mover), indexing_shown(), mover:
        yield [f'{finding.what}: {_done(finding, device)} ({finding.origin})' for finding in findings]


def _done(finding: Finding, device: str | torch.device) -> str:
    if finding.kind in OUTSIDE:
        return f'moved to {device}'
    return 'left where it was' if finding.kind == 'cpu call' else f'made on {device}'


@contextmanager
def _from_numpy(mover: _TensorMover) -> Iterator[None]:
    """Move the results of ``torch.from_numpy`` where that was found wrong. A TorchFunctionMode does not see the call."""
    original = torch.from_numpy

    def from_numpy(array: Any) -> Tensor:
        tensor = original(array)
        return tensor.to(mover.device) if mover.kind_here() == 'numpy' else tensor

    with mock.patch.object(torch, 'from_numpy', from_numpy):
        yield


def _names_cpu(values: Sequence[Any]) -> bool:
    return any(str(value) in ('cpu', 'torch.FloatTensor') for value in values)


class _TensorMover(TorchFunctionMode):
    """Replace `held_tensors` by moved ones, and move the results of `lines` to the device."""

    def __init__(self, device: torch.device, held_tensors: dict[int, Tensor], lines: dict[tuple[str, int], str],
                 names: dict[int, str]) -> None:
        super().__init__()
        self.device, self.held_tensors, self.lines = device, held_tensors, lines
        self.moved: dict[int, Tensor] = {}
        self._where = Tags({}, names)

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, '__name__', '')
        if self.held_tensors:
            args, kwargs = tree_map(self._moved, (tuple(args), kwargs))
        kind = self.kind_here() if self.lines and name not in ('__get__', 'size', 'dim', 'device') else None
        if kind == 'cpu call' and (name == 'cpu' or (name in ('to', 'type') and _names_cpu((*args[1:], *kwargs.values())))):
            return args[0]
        result = func(*args, **kwargs)
        made_here = kind in MADE_THERE and not any(isinstance(value, Tensor) for value in tree_leaves((args, kwargs)))
        return result.to(self.device) if made_here and isinstance(result, Tensor) else result

    def _moved(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or id(value) not in self.held_tensors:
            return value
        if id(value) not in self.moved:
            self.moved[id(value)] = value.detach().to(self.device)
        return self.moved[id(value)]

    def kind_here(self) -> str | None:
        place: Place = self._where.here()
        return self.lines.get((place.file, place.line))
