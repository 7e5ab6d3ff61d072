"""Let an export go on where sympy cannot solve a condition on a size.

At the end of an export torch solves the conditions on sizes to word an advice about ``dynamic_shapes``; the conditions themselves are
checks in the program already. Sympy solves no equation such as ``x / 32 == (x / 8) // 4`` (NAS-FPN joins such maps), and the whole export
ends with its NotImplementedError.

Tried on torch 2.13.0 (``torch/fx/experimental/symbolic_shapes.py``: ``DimConstraints.solve``). Where that method is missing nothing is
done.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from ....utils.skipped import skip


@contextmanager
def unsolved_conditions() -> Iterator[None]:
    """Leave out conditions that sympy cannot solve, inside the block."""
    from torch.fx.experimental import symbolic_shapes
    constraints = getattr(symbolic_shapes, 'DimConstraints', None)
    original = getattr(constraints, 'solve', None)
    if original is None:
        yield
        return

    def solve(self: Any) -> None:
        try:
            original(self)
        except NotImplementedError as exc:
            skip("solving torch's conditions on sizes", ' '.join(str(exc).split()), 'they are checks of the program as they are')

    with mock.patch.object(constraints, 'solve', solve):
        yield
