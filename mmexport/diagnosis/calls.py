"""Record the calls of modules in one run: caller, inputs and outputs.

A call is named by its module's path and its number, for a module may be called twice and be wrong the second time only.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..compat.pytree import tree_leaves, tree_map
from ..utils.override import override

Hook = Callable[..., None]


@dataclass(frozen=True)
class Call:
    """Hold one call; `inside` is the call that made it, None for the adapter or the model itself."""

    path: str
    number: int = 1
    inside: Call | None = None

    def __str__(self) -> str:
        return self.path if self.number == 1 else f'{self.path}, call {self.number}'


@dataclass
class Recorded:
    """Hold the inputs of a call, and its output tensors."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: list[Tensor] = field(default_factory=list)


def list_calls(model: nn.Module, run: Callable[[], Any]) -> list[Call]:
    """Return all calls of `model`'s modules that `run` makes. They are in the order in which they begin."""
    calls: list[Call] = []
    with watching(model, lambda call, args, kwargs: calls.append(call), lambda call, output: None), torch.no_grad():
        run()
    return calls


def record(model: nn.Module, run: Callable[[], Any], chosen: Sequence[Call]) -> dict[Call, Recorded]:
    """Return copies of the inputs and outputs of the `chosen` calls. Later code may write into the originals."""
    recorded: dict[Call, Recorded] = {}

    def before(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if call in chosen:
            recorded[call] = Recorded(*tree_map(_copy, (args, kwargs)))

    def after(call: Call, output: Any) -> None:
        if call in recorded:
            recorded[call].outputs = [tensor.clone() for tensor in tensors_of(output)]

    with watching(model, before, after), torch.no_grad():
        run()
    return recorded


def tensors_of(output: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]


@contextmanager
def watching(model: nn.Module, before: Hook, after: Hook) -> Iterator[None]:
    """Call ``before(call, args, kwargs)`` and ``after(call, output)`` around every call of a module below `model`.

    Around ``forward`` itself: mmseg's heads call their own ``forward``, which hooks of a module do not see.
    """
    stack: list[Call] = []
    counts: Counter[str] = Counter()

    def watched(path: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            counts[path] += 1
            call = Call(path, counts[path], stack[-1] if stack else None)
            before(call, args, kwargs)
            stack.append(call)
            try:
                output = forward(*args, **kwargs)
            finally:
                stack.pop()
            after(call, output)
            return output
        return run

    with ExitStack() as undo:
        for path, module in model.named_modules():
            if path:
                undo.enter_context(override(module, 'forward', watched(path, module.forward)))
        yield


def _copy(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf
