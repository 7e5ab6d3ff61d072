"""Test colour on a terminal alone."""
from __future__ import annotations

import pytest

from mmexport.cli.printing import print_lines
from mmexport.utils.line import Line

LINES = ['a [bold]plain[/bold] line', Line('PASS: work_dirs/x', 'bold green')]


def test_a_pipe_gets_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines(LINES)
    assert capsys.readouterr().out.splitlines() == [str(line) for line in LINES]


def test_a_terminal_gets_colour(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv('FORCE_COLOR', '1')
    monkeypatch.setenv('TERM', 'xterm')
    print_lines(LINES)
    plain, verdict = capsys.readouterr().out.splitlines()
    assert plain == LINES[0]
    assert verdict.startswith('\x1b[') and 'PASS' in verdict
