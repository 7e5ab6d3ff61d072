"""Replace the start of checker processes in tests by forks of a server that has imported torch. They are processes of their own still."""
from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from mmexport.verification import checker_process

SERVER = Path(__file__).with_name('checker_server.py')
# What a process reads of its environment while it starts, so that a server has one value of each.
AT_START = ('PYTHONPATH', 'OMP_NUM_THREADS', 'CUDA_VISIBLE_DEVICES')


class ForkedChecker:
    """Replace the ``subprocess.Popen`` of `CheckerProcess`: one order, one exit code.

    Args:
        command: the interpreter, the checker's folder, ``--wait-for``, the backend, and maybe a runner.
        stderr: the open file for its messages.
    """

    def __init__(self, command: Sequence[str], stderr: Any, **_: Any) -> None:
        self.returncode: int | None = None
        self.stdin: Any = SimpleNamespace(closed=False)
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f'{folder}/s')
            listener.listen(1)
            listener.settimeout(60)
            server = _server(tuple(command[3:]), tuple(os.environ.get(name) for name in AT_START))
            assert server.stdin
            print(json.dumps(dict(socket=f'{folder}/s', stderr=os.path.abspath(stderr.name), env=dict(os.environ), cwd=os.getcwd())),
                  file=server.stdin, flush=True)
            self._connection, _ = listener.accept()
        self._connection.settimeout(None)

    def communicate(self, order: str = '') -> None:
        with self._connection, self._connection.makefile() as answer:
            self._connection.sendall(order.encode())
            self._connection.shutdown(socket.SHUT_WR)
            self.returncode = int(answer.read())
        self.stdin.closed = True

    def kill(self) -> None:
        """Do nothing: without an order it ends by itself."""


@cache
def _server(arguments: tuple[str, ...], _: tuple[str | None, ...]) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, str(SERVER), *arguments], stdin=subprocess.PIPE, text=True)


@contextmanager
def forked_checkers() -> Iterator[None]:
    """Replace started processes by forks in this scope."""
    real = checker_process.subprocess
    checker_process.subprocess = SimpleNamespace(Popen=ForkedChecker, PIPE=real.PIPE, DEVNULL=real.DEVNULL)  # type: ignore[assignment]
    try:
        yield
    finally:
        checker_process.subprocess = real
        _server.cache_clear()
