"""Check that modes see every way of indexing a tensor, on every torch."""
from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from mmexport.compat import indexing


class Names(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(getattr(func, '__name__', ''))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize('shown', [True, False])
@pytest.mark.parametrize('index', [0, None, slice(1), ..., (slice(None), 0), torch.tensor([1]), torch.tensor([True, False])])
def test_modes_see_every_index(index: Any, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not shown:
        monkeypatch.setattr(indexing, '_is_shown', lambda: False)
    tensor = torch.arange(6.0).view(2, 3)
    expected = tensor[index]
    original = torch.Tensor.__getitem__
    mode = Names()
    with indexing.indexing_shown(), mode:
        actual = tensor[index]
    assert '__getitem__' in mode.names
    assert torch.equal(actual, expected)
    assert torch.Tensor.__getitem__ is original


def test_tensors_without_axes_stay_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Setting ``__getitem__`` on a class makes its instances sequences, and torch reads the length of a sequence."""
    monkeypatch.setattr(indexing, '_is_shown', lambda: False)
    number = torch.tensor(3)
    with indexing.indexing_shown():
        class Later(torch.Tensor):
            pass

        assert torch.tensor([number]).tolist() == torch.zeros(1).new_tensor([number]).tolist() == [3]
    assert torch.tensor([number]).tolist() == torch.zeros(1).new_tensor([number]).tolist() == [3]
    assert torch.tensor([torch.nn.Parameter(torch.tensor(2.0)), number.as_subclass(Later)]).tolist() == [2, 3]


def test_nothing_is_replaced_where_the_slots_are_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, '_is_shown', lambda: False)
    monkeypatch.setattr(indexing, '_slots_are_found', lambda: False)
    original = torch.Tensor.__getitem__
    with indexing.indexing_shown():
        assert torch.Tensor.__getitem__ is original


def test_the_slots_are_found() -> None:
    """On CPython 3.8 to 3.13; elsewhere `tensor[index]` stays hidden."""
    assert indexing._slots_are_found()
