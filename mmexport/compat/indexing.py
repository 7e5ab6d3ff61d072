"""Let a TorchFunctionMode see `tensor[index]`, where torch itself does not show it one.

Tried on torch 2.1.2, which shows a mode only those whose index is a tuple, and on 2.4.1, 2.6.0, 2.8.0, 2.13.0 and
2.14.1, which show all.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, handle_torch_function


@contextmanager
def indexing_shown() -> Iterator[None]:
    """Replace ``Tensor.__getitem__`` inside the block by one that modes see, if they do not see torch's own."""
    if _is_shown():
        yield
        return
    original: Any = Tensor.__getitem__

    def indexed(tensor: Tensor, index: Any) -> Any:
        if torch._C._is_torch_function_mode_enabled():
            return handle_torch_function(original, (tensor,), tensor, index)
        return original(tensor, index)

    Tensor.__getitem__ = indexed  # type: ignore[assignment]
    try:
        yield
    finally:
        Tensor.__getitem__ = original  # type: ignore[method-assign]


@lru_cache(maxsize=1)
def _is_shown() -> bool:
    seen: list[Any] = []

    class Probe(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    tensor = torch.zeros(2)
    with Probe():
        tensor[0]
    return bool(seen)
