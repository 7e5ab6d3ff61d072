"""What can be done before the file is there: the imports, of which the runtime's is the longest after torch's."""
from __future__ import annotations

import json
import sys

from .files import runner_of
from .main import main


def wait_and_check(backend: str) -> int:
    """Check what one line of standard input names, the program's arguments as JSON; it comes when the file of `backend` is made."""
    if ready := getattr(runner_of({'backend': backend}), 'ready', None):
        ready()
    line = sys.stdin.readline()
    return main(json.loads(line)) if line else 0
