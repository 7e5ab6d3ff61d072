"""Compute with sizes so that a tracer follows: `int`, `math.ceil`, `min` and `max` make constants of traced sizes.

Under ``torch.jit.trace`` an element of ``x.shape`` is a tensor of no dimension, under ``torch.export`` a ``SymInt``, otherwise an int;
each function takes all three.
"""
from __future__ import annotations

from fractions import Fraction
from typing import Any

import torch
from torch import Tensor


def scaled(side: Any, factor: float) -> Any:
    """Return ``int(side * factor)``. Of a SymInt the factor is an exact fraction, which may give one more."""
    if float(factor).is_integer():
        return side * int(factor)
    if isinstance(side, Tensor):
        return (side.double() * factor).long()
    if isinstance(side, torch.SymInt):
        # Whole numbers only: a formula with a float in it is one that exporters cannot simplify.
        exact = Fraction(factor).limit_denominator(1 << 16)
        return side * exact.numerator // exact.denominator
    return int(side * factor)


def cut(values: Tensor, axis: int, size: Any) -> Tensor:
    """Return the first `size` elements along `axis`; a slice would ask of open sizes whether there are as many."""
    return values.index_select(axis, torch.arange(size, device=values.device))


def ceil_div(side: Any, step: int) -> Any:
    """Return ``math.ceil(side / step)``."""
    return (side + step - 1) // step


def padding_to_multiple(side: Any, step: int) -> Any:
    """Return the difference to the next multiple of `step`; without a remainder, so that symbolic sizes stay simple."""
    return ceil_div(side, step) * step - side


def at_least_zero(side: Any) -> Any:
    """Return ``max(side, 0)``."""
    if isinstance(side, Tensor):
        return side.clamp(min=0)
    return torch.sym_max(side, 0)


def same_padding(side: Any, kernel: int, stride: int, dilation: int) -> Any:
    """Return the padding of "same" convolution.

    It is ``max((ceil(side / stride) - 1) * stride + reach - side, 0)`` with reach = (kernel - 1) * dilation + 1.
    Only what exceeds a multiple of the stride depends on the side.
    """
    reach = (kernel - 1) * dilation + 1
    needed = (padding_to_multiple(side, stride) if stride > 1 else 0) + reach - stride
    return needed if reach >= stride else at_least_zero(needed)


def equal(one: Any, other: Any) -> Any:
    """Return 1 if the sizes are equal, else 0; sizes are above zero."""
    same = one == other
    if isinstance(same, Tensor):
        return same.long()
    if isinstance(same, torch.SymBool):
        # The smaller over the larger is 0. OpenVINO has no rule for sym_min and sym_max.
        return (one // other) * (other // one)
    return int(same)
