"""Test that a work dir is checked format by format, and a folder with a file as one."""
from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mmexport.cli.main import run
from mmexport.cli.verify import formats_in

CODES = {'torchscript': 0, 'onnx': 1, 'torch_export': 2}


@pytest.fixture
def work_dir(tmp_path: Path) -> Path:
    for name in (*CODES, 'failed/openvino', '.mmexport-tmp-1/onnx'):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / 'manifest.json').write_text('{}')
    (tmp_path / 'pictures').mkdir()
    return tmp_path


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Replace the checker's process; its exit code is that of the format."""
    commands: list[list[str]] = []

    def process(command: list[str], **_: Any) -> SimpleNamespace:
        commands.append(command[2:])
        return SimpleNamespace(returncode=CODES[Path(command[2]).name])

    monkeypatch.setattr('mmexport.cli.verify.subprocess.run', process)
    return commands


def test_each_format_of_a_work_dir_is_checked(work_dir: Path, checked: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(['verify', str(work_dir), '--trust']) == 2
    assert [Path(command[0]).name for command in checked] == ['onnx', 'torch_export', 'torchscript']
    assert all('--trust' in command for command in checked)
    assert f'{work_dir / "onnx"}:' in capsys.readouterr().out


def test_a_folder_with_a_file_is_checked_alone(work_dir: Path, checked: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert formats_in(work_dir / 'onnx') == [] and run(['verify', str(work_dir / 'onnx'), '--out', 'found.json']) == 1
    assert [command[0] for command in checked] == [str(work_dir / 'onnx')] and capsys.readouterr().out == ''


def test_levels_of_outputs_are_found(tmp_path: Path) -> None:
    for name in ('final/onnx', 'raw/onnx', 'raw/failed/torchscript'):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / 'manifest.json').write_text('{}')
    assert formats_in(tmp_path) == [tmp_path / 'final' / 'onnx', tmp_path / 'raw' / 'onnx']


def test_one_output_file_is_for_one_format(work_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(['verify', str(work_dir), '--out', 'found.json']) == 2
    assert '--samples and --out are for one file' in capsys.readouterr().err
