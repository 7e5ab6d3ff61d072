"""Replace a method on one instance, for a time."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_ABSENT = object()


@contextmanager
def override(owner: Any, method: str, answer: Any) -> Iterator[None]:
    """Replace ``owner.method`` by `answer` inside the block, on that object only; blocks may be nested."""
    before = vars(owner).get(method, _ABSENT)
    vars(owner)[method] = answer
    try:
        yield
    finally:
        if before is _ABSENT:
            del vars(owner)[method]
        else:
            vars(owner)[method] = before
