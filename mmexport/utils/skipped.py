"""Remember which code on torch's internals is not used. The report says each once."""
from __future__ import annotations

_lines: dict[str, str] = {}
SLOWER = 'slower than usual'


def skip(name: str, reason: object, effect: str = SLOWER) -> None:
    """Note that `name` is not used in this process, with the reason and its effect."""
    first = str(reason).splitlines()[0] if str(reason) else type(reason).__name__
    _lines.setdefault(name, f'{effect}: {name} was skipped: {first}')


def skipped() -> list[str]:
    """Return a line for each that was not used."""
    return list(_lines.values())
