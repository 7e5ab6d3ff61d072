"""Start checker processes for tests by forking: python tests/checker_server.py BACKEND [RUNNER]. Most of their time is the import of torch.

Each line on standard input is a request, JSON: `socket` (a Unix socket that the client listens on), `stderr` (a file), `env` and `cwd`. A
process is forked for it, with torch, numpy and the format's runtime imported and nothing else, as `mmexport/checker --wait-for` has them.
It reads the program's arguments from the socket; its exit code goes back there. The end of standard input ends the server.
"""
from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

CHECKER = Path(__file__).resolve().parents[1] / 'mmexport' / 'checker'
# What their `load` imports.
MORE = {'torch_export': 'torch.export', 'aotinductor': 'torch._inductor'}


def checker() -> ModuleType:
    """Load the checker's folder as a package of its own name, as its `__main__` does."""
    spec = importlib.util.spec_from_file_location('checker_main', CHECKER / '__main__.py')
    assert spec and spec.loader
    main = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(main)
    main._as_package()
    return importlib.import_module('checker.waiting')


def main() -> None:
    backend, *runner = sys.argv[1:]
    waiting = checker()
    if runner:
        waiting.add_runner(backend, Path(runner[0]))
    if backend in MORE:
        importlib.import_module(MORE[backend])
    try:
        waiting.runner_of({'backend': backend}).ready()
    except (AttributeError, ImportError, ValueError):
        # The forked process says what is missing.
        pass
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        request = json.loads(line)
        if not os.fork():
            _report_exit_code(waiting, request, backend, *runner)


def _report_exit_code(waiting: ModuleType, request: dict[str, Any], backend: str, *runner: str) -> None:
    """Fork once more, so that there is a process that can tell how the checker ended; send its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(request['socket'])
    child = os.fork()
    if not child:
        _check(waiting, connection, request, backend, *runner)
    _, status = os.waitpid(child, 0)
    try:
        # One that ended early has left its order unread.
        while connection.recv(1 << 16):
            pass
        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    except OSError:
        # The client is gone.
        pass
    os._exit(0)


def _check(waiting: ModuleType, connection: socket.socket, request: dict[str, Any], backend: str, *runner: str) -> None:
    os.environ.clear()
    os.environ.update(request['env'])
    os.chdir(request['cwd'])
    for descriptor, file in ((1, os.open(os.devnull, os.O_WRONLY)), (2, os.open(request['stderr'], os.O_WRONLY | os.O_APPEND))):
        os.dup2(file, descriptor)
    os.dup2(connection.fileno(), 0)
    sys.stdin = open(0)
    code = 1
    try:
        code = waiting.wait_and_check(backend, *runner)
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException:  # As Python's main program does: print it, and end with 1.
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == '__main__':
    main()
