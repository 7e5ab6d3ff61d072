"""Run a loop whose end depends on values: scripted, or as one operator of an exported program."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import wrap_torch_function

from .op import form_of


def scripted(op: str) -> bool:
    """Return whether the loop of `op` is its scripted one. A trace keeps no other, whatever the format takes."""
    return torch.jit.is_tracing() or form_of(op) == 'script'


def script_of(loop: Callable[..., Any]) -> Callable[..., Any]:
    """Return `loop` as a scripted function of tensors. A torch function mode sees its call as that of one operator.

    It sees nothing of what a scripted function does, and the audit took the results for tensors of the CPU.
    """
    made = torch.jit.script(loop)

    def call(*args: Tensor) -> Any:
        return made(*args)

    call.__name__ = loop.__name__
    visible: Callable[..., Any] = wrap_torch_function(lambda *args: args)(call)
    return visible


def looped(goes_on: Callable[..., Tensor], step: Callable[..., tuple[Tensor, ...]], state: tuple[Tensor, ...],
           others: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the state after as many steps as `goes_on` asks for.

    Args:
        goes_on, step: both get the state and `others`, which stay; a step returns the state.
    """
    from ..compat.torch_internals import while_loop

    def body(*carried: Tensor) -> tuple[Tensor, ...]:
        # The operator does not take a tensor that is handed through.
        return (*step(*carried), *(other.clone() for other in carried[len(state):]))

    # Also the strides of an axis of size 1 must be those that a step returns.
    carried = tuple(part.clone(memory_format=torch.contiguous_format) for part in (*state, *others))
    return tuple(while_loop(goes_on, body, carried)[:len(state)])
