"""Import torch and a runtime before the file exists. Then wait until it can be checked."""
from __future__ import annotations

import json
import sys
from pathlib import Path

from .files import add_runner, runner_of
from .main import main


def wait_and_check(backend: str, runner: str = '') -> int:
    """Read the program's arguments from standard input, and check the file of `backend`. They are one line of JSON, sent once it exists."""
    if runner:
        add_runner(backend, Path(runner))
    if ready := getattr(runner_of({'backend': backend}), 'ready', None):
        ready()
    line = sys.stdin.readline()
    return main(json.loads(line)) if line else 0
