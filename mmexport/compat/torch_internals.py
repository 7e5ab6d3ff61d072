"""Find operators of torch whose place is not part of its public interface. Tried on torch 2.8.0, 2.13.0 and 2.14.1."""
from __future__ import annotations

from typing import Any

from ..errors import SetupError


def while_loop(*args: Any) -> Any:
    """Call torch's ``while_loop``, the operator of exported programs.

    Raises:
        SetupError: the installed torch has none where it was looked for.
    """
    try:
        from torch._higher_order_ops.while_loop import while_loop as operator
    except ImportError as exc:
        import torch
        raise SetupError(f'torch {torch.__version__} has no while_loop where mmexport looks for it: use --backend torchscript, or a torch '
                         'that mmexport doctor calls tried') from exc
    return operator(*args)
