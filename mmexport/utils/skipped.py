"""Remember which fast paths through torch's internals are not taken, so that the report can say it once."""
from __future__ import annotations

_reasons: dict[str, str] = {}


def skip(name: str, reason: object) -> None:
    """Note that the fast path `name` is not taken in this process; the result is the same, and slower."""
    _reasons.setdefault(name, str(reason).splitlines()[0] if str(reason) else type(reason).__name__)


def skipped() -> list[str]:
    """Return a line for each fast path that was not taken."""
    return [f'slower than usual: {name} was skipped: {reason}' for name, reason in _reasons.items()]
