"""Find operators of torch whose place is not part of its public interface. Tried on torch 2.8.0, 2.10.0, 2.13.0 and 2.14.1."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import SetupError


def while_loop(goes_on: Callable[..., Tensor], step: Callable[..., tuple[Tensor, ...]], carried: tuple[Tensor, ...]) -> Any:
    """Call torch's ``while_loop``, the operator of exported programs.

    Raises:
        SetupError: the installed torch has none where it was looked for.
    """
    try:
        from torch._higher_order_ops.while_loop import while_loop as operator
    except ImportError as exc:
        raise SetupError(f'torch {torch.__version__} has no while_loop where mmexport looks for it: use --backend torchscript, or a torch '
                         'that mmexport doctor calls tried') from exc
    _forget_compiled(carried)
    return operator(goes_on, step, carried)


def _forget_compiled(carried: tuple[Tensor, ...]) -> None:
    """Drop what Dynamo compiled for earlier loops.

    It compares their sizes with those of this one. A comparison with an open size is a guard, such as ``25 != limit + 1``, and
    ``torch.export`` refuses the program (torch 2.10.0 and 2.13.0). Compiled functions of the user's are compiled again.
    """
    is_open = any(isinstance(size, torch.SymInt) for tensor in carried for size in tensor.shape)
    if is_open and not torch.compiler.is_dynamo_compiling():
        torch.compiler.reset()
