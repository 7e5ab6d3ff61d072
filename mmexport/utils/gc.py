"""Raise the threshold of the garbage collector while tracing and model loading."""
from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# New containers until a collection of the youngest generation. Python's default, 700, suits programs that make and keep few.
MANY = 50_000


@contextmanager
def raised_gc_threshold() -> Iterator[None]:
    """Raise the threshold of the garbage collector inside the block.

    Imports and tracing make a great many objects that stay, and every collection visits them. Do not use it around forward passes:
    cycles that are not collected may hold large tensors.
    """
    before = gc.get_threshold()
    # 0 means that the user disabled collections.
    if 0 < before[0] < MANY:
        gc.set_threshold(MANY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
