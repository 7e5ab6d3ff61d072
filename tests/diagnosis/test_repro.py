"""Check the repro: it fails alone with the error of the diagnosis, and is removed where it does not."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mmexport.diagnosis import Diagnosis
from mmexport.diagnosis.repro import _read, run_alone, same_error
from tests.diagnosis.planted import FAULTS, diagnosed


def test_a_config_of_the_users_own_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert _read('../own.py', 'mmseg') == f'cfg = Config.fromfile({str(tmp_path.parent / "own.py")!r})'
    installed = _read('/site/mmseg/.mim/configs/fcn/fcn.py', 'mmseg')
    assert installed.startswith('import mmseg') and installed.endswith("/.mim/configs/fcn/fcn.py')")


def test_the_repro_shows_the_failure_without_mmexport(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS['a branch on a sum in a head']
    actual, _ = diagnosed(fault, tmp_path, monkeypatch, 'diagnosed_repro')
    assert str(actual[0].repro).endswith('repro_torch_export.py')
    repro = tmp_path / 'work' / 'failed' / 'repro_torch_export.py'
    lines = repro.read_text().splitlines()
    assert len(lines) < 40
    assert 'mmexport' not in repro.read_text()
    done = subprocess.run([sys.executable, '-W', 'ignore', str(repro)], capture_output=True, text=True, check=False, cwd=tmp_path,
                          env={**os.environ, 'PYTHONPATH': str(tmp_path)})
    assert done.returncode == 1
    assert 'data-dependent' in done.stderr


def test_the_repro_of_a_traced_graph_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS['an op without an ONNX form']
    actual, _ = diagnosed(fault, tmp_path, monkeypatch, 'diagnosed_traced', backends=[dict(type='ONNX', dynamo=False)])
    assert str(actual[0].repro).endswith('repro_onnx.py')
    repro = (tmp_path / 'work' / 'failed' / 'repro_onnx.py').read_text()
    assert 'torch.onnx.export(Part().eval(), inputs, "part.onnx"' in repro
    assert 'torch.export' not in repro


@pytest.mark.parametrize(('stage', 'message', 'stderr', 'same'), [
    ('lowering', 'torch.export of Part failed: GuardError: Could not guard on data-dependent expression u0 > 3',
     'torch.fx.GuardError: Could not guard on data-dependent expression u17 > 3\n\nSome advice', True),
    ('lowering', 'torch.export of Part failed: GuardError: Could not guard on data-dependent expression u0 > 3',
     "ModuleNotFoundError: No module named 'mmseg'", False),
    ('lowering', 'torch.jit.trace of Part failed: boxes must be sorted', 'RuntimeError: The following failed:\nboxes must be sorted', True),
    ('file', '2.3e-1 of its scale', 'AssertionError: Tensor-likes are not close!\n\nMismatched elements: 3 / 9', True),
    ('file', '2.3e-1 of its scale', 'RuntimeError: Tensor-likes are not close', False),
    ('file', '2.3e-1 of its scale', "NameError: name 'x' is not defined", False),
])
def test_a_repro_counts_only_with_the_same_error(stage: str, message: str, stderr: str, same: bool) -> None:
    actual = Diagnosis('onnx', stage, 'part', 'Part', None, None, None, None, message, None, None)
    assert same_error(actual, f'Traceback (most recent call last):\n  File "repro.py", line 3, in <module>\n    form()\n{stderr}\n') is same


@pytest.mark.parametrize(('code', 'shown'), [
    ('pass', None), ('raise ValueError("boxes must be sorted")', ''),
    ('raise KeyError("x")', "alone it ends with another error: KeyError: 'x'")])
def test_a_repro_that_does_not_fail_is_removed(code: str, shown: str | None, tmp_path: Path) -> None:
    message = 'lowering failed: ValueError: boxes must be sorted'
    actual = Diagnosis('onnx', 'lowering', 'part', 'Part', None, None, None, None, message, None, None)
    (tmp_path / 'repro.py').write_text(code)
    assert run_alone(tmp_path / 'repro.py', actual) == shown
