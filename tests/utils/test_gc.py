"""Test Python's garbage collector, seldom while a great many small objects are made."""
from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from mmexport.utils.gc import MANY, raised_gc_threshold


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_collections_are_seldom_inside_and_as_before_afterwards() -> None:
    gc.set_threshold(500, 7, 8)
    with pytest.raises(ValueError, match='half-way'), raised_gc_threshold():
        assert gc.get_threshold() == (MANY, 7, 8)
        raise ValueError('half-way')
    assert gc.get_threshold() == (500, 7, 8)


def test_containers_that_stay_are_not_visited_again_and_again() -> None:
    def collections() -> int:
        before = sum(actual['collections'] for actual in gc.get_stats())
        kept = [[number] for number in range(20_000)]
        return len(kept) and sum(actual['collections'] for actual in gc.get_stats()) - before

    gc.set_threshold(700, 10, 10)
    often = collections()
    with raised_gc_threshold():
        seldom = collections()
    assert often >= 20 and seldom <= 1


@pytest.mark.parametrize('first', [0, MANY * 10])
def test_a_user_who_has_fewer_keeps_them(first: int) -> None:
    gc.set_threshold(first, 10, 10)
    with raised_gc_threshold():
        assert gc.get_threshold() == (first, 10, 10)
    assert gc.get_threshold() == (first, 10, 10)
