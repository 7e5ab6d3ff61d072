"""Print the steps of a run with their time, and keep them for the report."""
from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

RUNNING = 'eager'
KINDS = ('set-up', 'lowering', 'making inputs', RUNNING, 'checking')


class Progress:
    """Show each step with a spinner and its time; `seconds` keeps all of them."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.seconds: dict[str, float] = {}
        self.status: Any = None
        # Seconds of the steps of each of `KINDS`.
        self.by_kind: dict[str, float] = dict.fromkeys(KINDS, 0.0)
        # Sentences for the report.
        self.notes: list[str] = []

    @contextmanager
    def __call__(self, what: str, kind: str = 'checking') -> Iterator[None]:
        from rich.console import Console
        console = Console(file=sys.stderr, quiet=self.quiet, highlight=False)
        started = time.perf_counter()
        with console.status(f'{what} ...') as self.status:
            yield
        took = time.perf_counter() - started
        self.seconds[what] = self.seconds.get(what, 0.0) + took
        self.by_kind[kind] = self.by_kind.get(kind, 0.0) + took
        console.print(f'{what:<52} {took:6.1f} s')

    def say(self, what: str) -> None:
        """Show the current part of the step beside its spinner."""
        if self.status is not None:
            self.status.update(f'{what} ...')

    def note(self, sentence: str) -> None:
        """Keep `sentence` for the report."""
        self.notes.append(sentence)


def counted(count: int, word: str) -> str:
    """Return ``1 input``, ``2 inputs``."""
    return f'{count} {word}' if count == 1 else f'{count} {word}s'
