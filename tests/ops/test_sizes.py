"""Test the same arithmetic in Python, under a tracer and under torch.export."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmexport.backends.exported.program import unavailable
from mmexport.ops.sizes import at_least_zero, ceil_div, equal, padding_to_multiple, scaled

CASES: dict[str, tuple[Callable[[Any], Any], Callable[[int], int]]] = {
    'scaled': (lambda side: scaled(side, 1.5), lambda side: int(side * 1.5)),
    'scaled by a whole number': (lambda side: scaled(side, 2), lambda side: 2 * side),
    'ceil_div': (lambda side: ceil_div(side, 4), lambda side: math.ceil(side / 4)),
    'padding_to_multiple': (lambda side: padding_to_multiple(side, 4), lambda side: -side % 4),
    'at_least_zero': (lambda side: at_least_zero(side - 12), lambda side: max(side - 12, 0)),
    'equal': (lambda side: equal(side, 12), lambda side: int(side == 12)),
    'equal, the other way': (lambda side: equal(12, side), lambda side: int(side == 12)),
}
SIDES = (5, 6, 11, 12, 13, 24, 100)


class Sized(nn.Module):
    """Return as many rows as the size says, and three."""

    def __init__(self, size: Callable[[Any], Any]) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        return x.new_zeros(self.size(x.shape[0]) + 3)


@pytest.mark.parametrize('name', CASES)
def test_python_tracer_and_export_agree(name: str) -> None:
    size, expected = CASES[name]
    module = Sized(size)
    traced = torch.jit.trace(module, torch.zeros(7), check_trace=False)
    programs = [] if unavailable() else [
        torch.export.export(module, (torch.zeros(7),), dynamic_shapes=({0: torch.export.Dim.AUTO},), strict=False).module()]
    for side in SIDES:
        assert size(side) == expected(side)
        for made in (module, traced, *programs):
            assert made(torch.zeros(side)).shape[0] == expected(side) + 3, (name, side)
