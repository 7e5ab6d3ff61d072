"""Test one command with subcommands: suggestions, exit codes, and help that imports neither torch nor OpenMMLab."""
from __future__ import annotations

import subprocess
import sys
import time

import pytest

from mmexport import __version__
from mmexport.cli.main import COMMANDS, HIDDEN, run
from tests.tools.test_tools import ENV


def test_an_unknown_command_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(['exprt', 'config.py']) == 2
    assert "no command 'exprt' (did you mean export?)" in capsys.readouterr().err


def test_an_unknown_option_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(['export', 'config.py', 'c.pth', '--backnd', 'onnx']) == 2
    assert '--backend' in capsys.readouterr().err


def test_an_unknown_format_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(['export', 'configs/fcn.py', 'absent.pth', '--backend', 'torchscrpt', '--quiet']) == 2
    assert 'did you mean torchscript' in capsys.readouterr().err


@pytest.mark.parametrize(('arguments', 'words'), [
    (['configs/fcn.py', 'c.pth', '--outputs', 'fnal'], 'did you mean final'),
    (['configs/fcnn.py', 'c.pth'], 'no such config file (did you mean configs/fcn.py?)'),
    (['configs/fcn.py', 'c.pth', '--device', 'cud'], 'did you mean cuda'),
])
def test_other_unknown_words_get_a_suggestion(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(['export', *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(('arguments', 'words'), [
    (['verify', 'tests/chekcer'], 'no such folder (did you mean tests/checker?)'),
    (['audit', 'configs/fcn.py', '--device', 'cud'], 'did you mean cuda'),
    (['audit', 'configs/fcn.py', '--device', 'xpu'], 'expected cuda, cuda:N'),
    (['export', 'configs/fcn.py', 'c.pth', '--accept-branch', 'somewhere'], 'expected FILE:LINE'),
    (['sweep', '--backend', 'onx', '--out', 'nowhere'], 'did you mean onnx'),
])
def test_words_of_other_commands_are_looked_at_first(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert words in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(['--version']) == 0
    assert capsys.readouterr().out.strip() == __version__


@pytest.mark.parametrize('command', ['', *COMMANDS])
def test_help_lists_options_without_importing_torch(command: str) -> None:
    """Alone it takes 0.1 s; the limit is 3 s, because other tests run on the same cores."""
    code = (f'import sys\nsys.argv = ["mmexport", {command!r}, "--help"] if {command!r} else ["mmexport", "--help"]\n'
            'import mmexport.cli\ntry:\n    mmexport.cli.main()\nexcept SystemExit as end:\n    assert end.code == 0\n'
            'assert not {"torch", "numpy", "mmengine"} & set(sys.modules)')
    started = time.perf_counter()
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, env=ENV, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('Usage: mmexport')
    assert time.perf_counter() - started < 3
    if not command:
        assert all(name in done.stdout for name in COMMANDS if name not in HIDDEN)


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, '-m', 'mmexport', '--help'], capture_output=True, text=True, env=ENV, check=False)
    assert done.returncode == 0
    assert 'diagnose' in done.stdout


@pytest.mark.parametrize(('words', 'expected'), [
    ('ex', ['plain,export']),
    ('export con', ['file,con']),
    ('export c.py c.pth --backend torch', ['plain,torch_export', 'plain,torchscript']),
    ('export c.py c.pth --backend onnx torchs', ['plain,torchscript']),
    ('export c.py c.pth --device cu', ['plain,cuda']),
    ('export c.py c.pth --outputs fin', ['plain,final']),
    ('export c.py c.pth --work-dir wo', ['dir,wo']),
    ('export c.py c.pth --backend onnx --prog', ['plain,--progressive']),
    ('verify work', ['file,work'])])
def test_the_shell_completes_commands_and_their_values(words: str, expected: list[str]) -> None:
    env = {**ENV, '_MMEXPORT_COMPLETE': 'bash_complete', 'COMP_WORDS': f'mmexport {words}', 'COMP_CWORD': str(len(words.split()))}
    done = subprocess.run([sys.executable, '-c', 'import sys; sys.argv = ["mmexport"]; from mmexport.cli import main; main()'],
                          capture_output=True, text=True, env=env, check=False)
    assert done.stdout.split() == expected, done.stderr
