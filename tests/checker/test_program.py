"""Check the folder as a program of its own: under a name that is not mmexport's, and waiting for a file that is not there yet."""
from __future__ import annotations

import importlib
import io
import json
import sys
from pathlib import Path

import pytest

import mmexport.checker
from mmexport.checker import waiting
from mmexport.checker.files import runner_of

HERE = Path(mmexport.checker.__file__).parent


def test_checker_folder_is_importable_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    program = importlib.import_module('mmexport.checker.__main__')
    for name in [name for name in sys.modules if name.split('.')[0] == 'checker']:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, 'path', [str(HERE), '', *sys.path])
    path = sys.path
    program._as_package()
    try:
        module = sys.modules['checker']
        assert module.__name__ == 'checker'
        assert list(module.__path__) == [str(HERE)]
        assert module.__doc__ == mmexport.checker.__doc__
        assert sys.path is path and str(HERE) not in sys.path and '' in sys.path
        options = importlib.import_module('checker.options')
        assert Path(str(options.__file__)) == HERE / 'options.py'
    finally:
        for name in [name for name in sys.modules if name.split('.')[0] == 'checker']:
            del sys.modules[name]


@pytest.mark.parametrize(('line', 'code'), [('["work", "--device", "cpu"]\n', 7), ('', 0)])
def test_wait_and_check_imports_runtime_then_reads_stdin(line: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[object] = []
    monkeypatch.setattr(runner_of({'backend': 'onnx'}), 'ready', lambda: order.append('ready'))
    monkeypatch.setattr(waiting, 'main', lambda argv: order.append(argv) or 7)
    monkeypatch.setattr(sys, 'stdin', io.StringIO(line))
    assert waiting.wait_and_check('onnx') == code
    assert order == ['ready', *([json.loads(line)] if line else [])]


def test_wait_and_check_without_runtime_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, 'stdin', io.StringIO(''))
    assert waiting.wait_and_check('torchscript') == 0
