"""Arithmetic on sizes that a tracer follows: `int`, `math.ceil`, `min` and `max` turn a traced size into a constant.

Under ``torch.jit.trace`` an element of ``x.shape`` is a tensor of no dimension, otherwise it is an int; each function takes both.
"""
from __future__ import annotations

from typing import Any

from torch import Tensor


def scaled(side: Any, factor: float) -> Any:
    """``int(side * factor)``."""
    if float(factor).is_integer():
        return side * int(factor)
    if isinstance(side, Tensor):
        return (side.double() * factor).long()
    return int(side * factor)


def ceil_div(side: Any, step: int) -> Any:
    """``math.ceil(side / step)``."""
    return (side + step - 1) // step


def at_least_zero(side: Any) -> Any:
    """``max(side, 0)``."""
    return side.clamp(min=0) if isinstance(side, Tensor) else max(side, 0)


def at_most(side: Any, limit: int) -> Any:
    """``min(side, limit)``."""
    return side.clamp(max=limit) if isinstance(side, Tensor) else min(side, limit)


def equal(one: Any, other: Any) -> Any:
    """1 where the sizes are equal, else 0."""
    same = one == other
    return same.long() if isinstance(same, Tensor) else int(same)
