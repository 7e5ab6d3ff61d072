"""One method of one object, for a while."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_ABSENT = object()


@contextmanager
def answering(owner: Any, method: str, answer: Any) -> Iterator[None]:
    """Let ``owner.method`` be `answer` inside the block, on that one object; blocks may lie inside each other."""
    before = vars(owner).get(method, _ABSENT)
    vars(owner)[method] = answer
    try:
        yield
    finally:
        if before is _ABSENT:
            del vars(owner)[method]
        else:
            vars(owner)[method] = before
