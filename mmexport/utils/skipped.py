"""Remember which code on torch's internals is not used. The report of a run says each once."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_lines: dict[str, str] = {}
SLOWER = 'slower than usual'


def skip(name: str, reason: object, effect: str = SLOWER) -> None:
    """Note that `name` is not used in this run, with the reason and its effect."""
    first = str(reason).splitlines()[0] if str(reason) else type(reason).__name__
    _lines.setdefault(name, f'{effect}: {name} was skipped: {first}')


def skipped() -> list[str]:
    """Return a line for each that was not used."""
    return list(_lines.values())


@contextmanager
def restore_notes() -> Iterator[None]:
    """Remove at the end of a run what was noted during it. What was noted before, while backends were built, holds for all runs."""
    before = dict(_lines)
    try:
        yield
    finally:
        _lines.clear()
        _lines.update(before)
