"""Start the checker process during lowering. Its imports take seconds, and overlap with it."""
from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CHECKER = Path(__file__).parents[1] / 'checker'


class CheckerProcess:
    """Run a Python process with torch, numpy and one runtime imported. It waits for the order to check a file.

    Args:
        backend: whose runtime is imported meanwhile.
        scratch: a folder for the output of the process, which is not read while it waits.
        runner: the ``runner.py`` of the format, where it is not mmexport's own.
    """

    def __init__(self, backend: str, scratch: Path, runner: Path | None = None) -> None:
        self.backend = backend
        scratch.mkdir(parents=True, exist_ok=True)
        self._stderr_file = scratch / f'{backend}.stderr'
        with self._stderr_file.open('wb') as stderr:
            self._child = subprocess.Popen([sys.executable, str(CHECKER), '--wait-for', backend,
                                            *([str(runner)] if runner else [])], stdin=subprocess.PIPE,
                                           stdout=subprocess.DEVNULL, stderr=stderr, text=True)

    def run(self, arguments: Sequence[str]) -> tuple[int, str]:
        """Pass `arguments` to the checker, once for each process; return its exit code and stderr."""
        # The process may have ended while it waited: then its exit code and its stderr are the result.
        self._child.communicate(json.dumps(list(arguments)) + '\n')
        return self._child.returncode, self._stderr_file.read_text(errors='replace')

    @property
    def idle(self) -> bool:
        return self._child.stdin is not None and not self._child.stdin.closed

    def close(self) -> None:
        """End the process if it was never asked."""
        if self.idle:
            self._child.kill()
            self._child.communicate()


@contextmanager
def waiting(backend: str, scratch: Path, runner: Path | None = None) -> Iterator[CheckerProcess]:
    """Start a process for the file of `backend`, and end it afterwards."""
    process = CheckerProcess(backend, scratch, runner)
    try:
        yield process
    finally:
        process.close()
