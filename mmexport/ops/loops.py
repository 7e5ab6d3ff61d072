"""Run a loop whose end depends on values: scripted, or as one operator of an exported program."""
from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .op import form_of


def scripted(op: str) -> bool:
    """Return whether the loop of `op` is its scripted one. A trace keeps no other, whatever the format takes."""
    return torch.jit.is_tracing() or form_of(op) == 'script'


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
