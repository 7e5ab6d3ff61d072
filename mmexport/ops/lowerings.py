"""Choose the form of an op: a patch calls the op, and the lowering backend sets the form."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_PREFERRED: ContextVar[dict[str, str]] = ContextVar('preferred', default={})  # noqa: B039, never changed in place


@contextmanager
def preferring(**forms: str) -> Iterator[None]:
    """Set the forms that `chosen` returns inside the block: ``preferring(deformable_attention='grid')``."""
    token = _PREFERRED.set({**_PREFERRED.get(), **forms})
    try:
        yield
    finally:
        _PREFERRED.reset(token)


def chosen(op: str, default: str) -> str:
    return _PREFERRED.get().get(op, default)
