"""Detect calls of ``torch.Size.numel`` by a profile function: it multiplies in C, where no subclass of int is asked."""
from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from types import FrameType
from typing import Any

import torch

from .numbers import ESCAPED, note, plain


@contextmanager
def size_products_noted() -> Iterator[None]:
    """Note each call of ``torch.Size.numel`` inside the block as a size that is not followed; nothing where a profiler runs already."""
    if sys.getprofile() is not None:
        yield
        return

    def watch(frame: FrameType, event: str, called: Any) -> None:
        if event == 'c_call' and getattr(called, '__name__', '') == 'numel' and isinstance(getattr(called, '__self__', None), torch.Size):
            note(frame, ESCAPED, None, (prod(map(plain, called.__self__)), 0), False)

    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)
