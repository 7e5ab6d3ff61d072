"""Test the effort that goes into inputs on which more classes are decided."""
from __future__ import annotations

import pytest

from mmexport.inputs.decisive import COUNT, SIDE, STEPS, decisive_size, effort
from mmexport.inputs.size_rules import SizeRules


def test_small_inputs_get_all_steps() -> None:
    assert effort(SIDE, SIDE) == effort(SIDE, 224) == (COUNT, STEPS)


@pytest.mark.parametrize('side', [320, 512, 640, 1024])
def test_one_large_size_costs_about_as_much_as_the_small_ones(side: int) -> None:
    count, steps = effort(side, side)
    assert 1 <= count <= COUNT
    assert 6 <= steps <= STEPS
    assert count * steps * side ** 2 <= COUNT * STEPS * SIDE ** 2 or (count, steps) == (1, 6)


def test_a_model_of_one_size_gets_inputs_of_that_size() -> None:
    assert decisive_size((1, 3, 640, 512), SizeRules(fixed=True)) == (640, 512)
    assert decisive_size((1, 3, 640, 128), SizeRules(multiple_of=64)) == (192, 128)
