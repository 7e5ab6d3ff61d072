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
