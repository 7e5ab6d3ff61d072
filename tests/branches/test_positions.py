"""Test that Python 3.10 knows lines only: conditions and tables are then found by the statement on the line."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import torch

from mmexport.branches import places, positions, tables
from mmexport.branches.recorder import record_picture

TABLE = {8: 1.0, 12: 2.0}


@pytest.fixture
def lines_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (positions, tables):
        monkeypatch.setattr(module, 'EXACT', False)
    caches = (positions.positions, tables._tables_at, places.place_of, places.inside_try)
    for each in caches:
        each.cache_clear()
    yield
    for each in caches:
        each.cache_clear()


def one_branch(image: torch.Tensor) -> torch.Tensor:
    assert image.shape[0] < 9, f'{image.shape[0] > 3}'
    if image.shape[3] > 8:
        return image * 2
    return image


def by_table(image: torch.Tensor) -> torch.Tensor:
    return image * TABLE[image.shape[3]]


def two_tables(image: torch.Tensor) -> torch.Tensor:
    return image * TABLE[image.shape[3]] * TABLE[image.shape[2]]


@pytest.mark.usefixtures('lines_only')
def test_a_condition_is_found_by_its_line() -> None:
    run = record_picture(one_branch, torch.zeros(1, 3, 8, 8))
    assert not run.error
    sites = {key[0] for key in run.conditions}
    # The assertion only refuses: it is no branch, on Python 3.10 too.
    assert [site.text for site in sites] == ['image.shape[3] > 8']


@pytest.mark.usefixtures('lines_only')
@pytest.mark.parametrize(('habit', 'keys'), [(by_table, (8, 12)), (two_tables, ())])
def test_a_table_is_found_if_it_is_the_only_one(habit: Callable[[torch.Tensor], torch.Tensor], keys: tuple[int, ...],
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[tuple[float, ...]] = []

    def record(frame: FrameType) -> Any:
        looked_up.append(tables_of(frame))
        return looked_up[-1]

    tables_of = tables.keys_looked_up
    from mmexport.branches import builtin_shims, numbers, recorder, run
    for module in (builtin_shims, numbers, recorder, run):
        if hasattr(module, 'keys_looked_up'):
            monkeypatch.setattr(module, 'keys_looked_up', record)
    assert not record_picture(habit, torch.zeros(1, 3, 8, 8)).error
    assert looked_up
    assert set(looked_up) == {keys}
