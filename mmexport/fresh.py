"""The fresh process that checks a file: started while the file is being made, for its imports take seconds and lowering one core."""
from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CHECKER = Path(__file__).parent / 'checking'


class FreshProcess:
    """A Python with torch, numpy and one runtime imported, that knows nothing of us and waits to be told what to check.

    Args:
        backend: whose runtime is imported meanwhile.
        scratch: a folder that takes what the process says, which nobody reads while it waits.
    """

    def __init__(self, backend: str, scratch: Path) -> None:
        self.backend = backend
        scratch.mkdir(parents=True, exist_ok=True)
        self._said = scratch / f'{backend}.stderr'
        with self._said.open('wb') as said:
            self._child = subprocess.Popen([sys.executable, str(CHECKER), '--wait-for', backend], stdin=subprocess.PIPE,
                                           stdout=subprocess.DEVNULL, stderr=said, text=True)

    def run(self, arguments: Sequence[str]) -> tuple[int, str]:
        """Check what the checker's `arguments` name: the exit code, and what there was to say. Once for each process."""
        # One that died while it waited hears nothing: then its code and its words are the answer.
        self._child.communicate(json.dumps(list(arguments)) + '\n')
        return self._child.returncode, self._said.read_text(errors='replace')

    @property
    def unasked(self) -> bool:
        return self._child.stdin is not None and not self._child.stdin.closed

    def close(self) -> None:
        """End the process if it was never asked."""
        if self.unasked:
            self._child.kill()
            self._child.communicate()


@contextmanager
def waiting(backend: str, scratch: Path) -> Iterator[FreshProcess]:
    """A process for the file of `backend`, gone afterwards, asked or not."""
    process = FreshProcess(backend, scratch)
    try:
        yield process
    finally:
        process.close()
