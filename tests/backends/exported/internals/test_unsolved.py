"""Test that a condition which sympy cannot solve ends no export, and is a check of the program."""
from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental import symbolic_shapes

from mmexport.backends.exported.internals.unsolved import unsolved_conditions
from mmexport.backends.exported.program import part_program, unavailable
from mmexport.utils.skipped import restore_notes, skipped

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))


class Joining(nn.Module):
    """Join two maps that are equal in size where the picture is a multiple of 128 high."""

    def forward(self, *images: Tensor) -> Tensor:
        image, = images
        deep = nn.functional.avg_pool2d(image, (32, 1))
        again = nn.functional.max_pool2d(nn.functional.avg_pool2d(image, (8, 1)), (4, 1))
        return deep + again


def test_conditions_stay_checks() -> None:
    before = symbolic_shapes.DimConstraints.solve
    program = part_program(Joining(), (torch.rand(1, 1, 256, 3),), [(2,)])
    assert symbolic_shapes.DimConstraints.solve is before
    for height in (64, 320, 350):
        image = torch.rand(1, 1, height, 3)
        assert torch.allclose(program.module()(image), Joining()(image))


def test_what_sympy_cannot_solve_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def solve(self: object) -> None:
        raise NotImplementedError('The inequality, Eq(-x/32 + (((x/8)//4)), 0), cannot be solved using')

    class Branching(nn.Module):
        def forward(self, *inputs: Tensor) -> Tensor:
            x, = inputs
            return x * 2 if x.shape[2] * 3 > x.shape[3] * 2 else x

    monkeypatch.setattr(symbolic_shapes.DimConstraints, 'solve', solve)
    with restore_notes():
        program = part_program(Branching(), (torch.ones(1, 1, 32, 16),), [(2, 3)])
        assert any("solving torch's conditions on sizes was skipped" in line for line in skipped())
    assert torch.equal(program.module()(torch.ones(1, 1, 48, 24)), torch.full((1, 1, 48, 24), 2.0))
    with pytest.raises(Exception, match='assert|guard|Guard|constraint'):
        program.module()(torch.ones(1, 1, 16, 48))


def test_nothing_is_done_without_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(symbolic_shapes, 'DimConstraints')
    with unsolved_conditions():
        assert not hasattr(symbolic_shapes, 'DimConstraints')
