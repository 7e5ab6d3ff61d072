"""Test the process that waits for a file: asked once, gone when it is not needed, and its death is an answer."""
from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mmexport.verification.checker_process import CHECKER, CheckerProcess, waiting

pytestmark = pytest.mark.usefixtures('real_checker')


def alive(process: CheckerProcess) -> bool:
    return process._child.poll() is None


def test_the_process_ends_when_it_is_not_used(tmp_path: Path) -> None:
    with waiting('torchscript', tmp_path) as process:
        assert alive(process) and process.idle
    assert not alive(process)


def test_what_it_finds_wrong_is_said(tmp_path: Path) -> None:
    with waiting('torchscript', tmp_path) as process:
        code, message = process.run([str(tmp_path / 'nothing'), '--device', 'cpu'])
        assert code == 2 and 'nothing' in message and 'cannot be checked' in message
        assert not process.idle


def test_one_that_died_while_it_waited_is_an_answer(tmp_path: Path) -> None:
    with waiting('torchscript', tmp_path) as process:
        os.kill(process._child.pid, signal.SIGKILL)
        process._child.wait()
        assert process.run([str(tmp_path)])[0] == -signal.SIGKILL


def test_a_format_that_the_checker_does_not_know_is_said(tmp_path: Path) -> None:
    with waiting('papyrus', tmp_path) as process:
        code, message = process.run([str(tmp_path)])
    assert code == 1 and "no loader for backend 'papyrus'" in message


def test_the_process_ends_with_the_one_that_started_it() -> None:
    """A killed export closes the pipe, and says nothing."""
    done = subprocess.run([sys.executable, str(CHECKER), '--wait-for', 'onnx'], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b'')
