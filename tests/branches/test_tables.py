"""Test that a lookup by a size is followed like comparisons with the keys of the table, where the table is found and is no cache."""
from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mmexport.branches import Run
from mmexport.branches.recorder import record_picture

FACTORS = {8: 1.5, 12: 2.0, 'other': 1.0}
CACHE: dict[int, Tensor] = {}


class Model:
    def __init__(self) -> None:
        self.factors = {8: 1.5, 12: 2.0}

    @property
    def made(self) -> dict[int, float]:
        raise AssertionError('a property is code of the user')

    def written_in_place(self, image: Tensor) -> Tensor:
        return image * {8: 1.5, 12: 2.0}.get(image.shape[3], 1.0)

    def a_global(self, image: Tensor) -> Tensor:
        return image * FACTORS.get(image.shape[3], 1.0)

    def an_attribute(self, image: Tensor) -> Tensor:
        return image * self.factors[image.shape[3]]

    def contained(self, image: Tensor) -> Tensor:
        return image * 2 if image.shape[3] in {8, 12} else image

    def a_cache(self, image: Tensor) -> Tensor:
        if image.shape[3] not in CACHE:
            CACHE[image.shape[3]] = image
        return image

    def too_large(self, image: Tensor) -> Tensor:
        table = dict.fromkeys(range(100), 1.0)
        return image * table[image.shape[3]]

    def made_by_a_call(self, image: Tensor) -> Tensor:
        return image * dict([(8, 1.5), (12, 2.0)])[image.shape[3]]  # noqa: C406

    def by_a_pair(self, image: Tensor) -> Tensor:
        return image * {(8, 8): 1.5}.get((image.shape[2], image.shape[3]), 1.0)


def run_of(habit: str) -> Run:
    call: Callable[[Tensor], Tensor] = getattr(Model(), habit)
    actual = record_picture(call, torch.zeros(1, 3, 8, 8))
    assert not actual.error
    return actual


@pytest.mark.parametrize('habit', ['written_in_place', 'a_global', 'an_attribute', 'contained'])
def test_each_key_is_a_comparison(habit: str) -> None:
    run = run_of(habit)
    assert [recorded for _, recorded in sorted(run.conditions.items(), key=lambda item: item[0][2])] == [(True, (8, 8)), (False, (8, 12))]
    assert not run.escaped


@pytest.mark.parametrize('habit', ['a_cache', 'too_large', 'made_by_a_call', 'by_a_pair'])
def test_a_table_that_is_not_found_is_not_followed(habit: str) -> None:
    run = run_of(habit)
    assert run.escaped
    assert not run.conditions, 'the key that is met says nothing of the others'
