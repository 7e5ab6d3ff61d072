"""Test errors of packages that do not go together, against errors of the model."""
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from mmexport.backends.building import build_backend
from mmexport.backends.exported import probing
from mmexport.backends.onnx.backend import ONNX
from mmexport.cli.outcome import exit_code
from mmexport.compat import torch_versions
from mmexport.compat.torch_versions import conflict_of, version_conflict
from mmexport.device import Audit
from mmexport.errors import Fact, LoweringError, SetupError
from mmexport.export.build import conflicting, lower_all
from mmexport.ops.op import registered
from mmexport.report.facts import Report

ROOT = Path(__file__).resolve().parents[2]


def _raised(call: object, *args: object, **kwargs: object) -> BaseException:
    with pytest.raises(Exception) as caught:
        call(*args, **kwargs)  # type: ignore[operator]
    return caught.value


def test_unknown_keyword_of_the_exporter_is_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on torch 2.8, whose ``torch.export.export`` lacks the option that torch 2.13 has."""
    monkeypatch.setattr(torch.onnx, 'export', lambda model, args, f: None)
    exc = _raised(ONNX(dynamo=False).attempt, nn.Identity(), (torch.zeros(1, 3),), ((),))
    assert isinstance(exc, LoweringError)
    assert 'unexpected keyword argument' in str(version_conflict(exc))
    conflict = conflict_of(exc)
    assert isinstance(conflict, SetupError)
    assert re.search(f'torch {torch.__version__.partition("+")[0]}.*mmexport doctor', str(conflict))


OF_THE_EXPORTER = compile('raise TypeError("export() got an unexpected keyword argument")', '/site-packages/torch/onnx/y.py', 'exec')


def test_a_conflict_in_a_probe_is_no_fault_of_a_form(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Mask2Former asks the runtime about deformable attention before anything else."""
    monkeypatch.setattr(probing, '_right', lambda *args: exec(OF_THE_EXPORTER))
    monkeypatch.setattr(probing, 'gettempdir', lambda: str(tmp_path))
    op = next(op for op in registered() if op.name == 'deformable_attention')
    with pytest.raises(SetupError, match='unexpected keyword argument.*do not go together'):
        probing.choose_form(ONNX(dynamo=True), torch.device('cpu'), op)


def test_a_conflict_of_one_format_leaves_the_others() -> None:
    class Session:
        def on_lowering(self, *args: object) -> None:
            raise AssertionError('an error of the environment has no diagnosis')

    def lower(backend: object, adapter: object, example: object) -> object:
        if backend.name == 'onnx':  # type: ignore[attr-defined]
            exec(OF_THE_EXPORTER)
        return 'the artifact'

    backends = [build_backend('torchscript'), ONNX(dynamo=True)]
    artifacts, failed = lower_all(backends, lower, None, torch.zeros(1), Session())  # type: ignore[arg-type]
    assert artifacts == ['the artifact']
    assert failed['onnx'].fact is Fact.VERSIONS
    assert conflicting(failed) == ('onnx',)
    with pytest.raises(SetupError, match='do not go together'):
        lower_all(backends[1:], lower, None, torch.zeros(1), Session())  # type: ignore[arg-type]


def report_of(failures: dict[str, str], verdicts: dict[str, bool], test_step: bool = True) -> Report:
    """Return a report in which packages of ONNX do not go together."""
    checks = tuple(SimpleNamespace(backend=name, passed=passed, reason=None, rows=()) for name, passed in verdicts.items())
    return Report(
        config='', checkpoint=None, device='cpu', task='', outputs='final', fit=None, applied=(), artifacts=(), stages=(),
        checks=checks, pipelines=(SimpleNamespace(passed=test_step),), floors={}, tolerance=1e-4,  # type: ignore[arg-type]
        seconds={}, versions={}, work_dir=Path(), audit=Audit('cpu', ()), failures=failures, conflicts=('onnx',))


CONFLICT = {'onnx': 'they do not go together'}


@pytest.mark.parametrize(('report', 'code'), [
    (report_of(CONFLICT, {}), 3),
    (report_of(CONFLICT, {'torchscript': True}), 3),
    (report_of(CONFLICT, {'torchscript': False}), 1),
    (report_of({**CONFLICT, 'openvino': 'wrong'}, {'torchscript': True}), 1),
    (report_of(CONFLICT, {}, test_step=False), 1),
], ids=['alone', 'beside a pass', 'beside a wrong file', 'beside a failure', 'beside test_step'])
def test_only_a_conflict_is_an_error_of_the_environment(report: Report, code: int) -> None:
    assert exit_code(report, False) == code


def test_unknown_keyword_of_the_model_is_none() -> None:
    class Wrong(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.ReLU()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x, scale=2)  # type: ignore[no-any-return]

    assert version_conflict(_raised(Wrong(), torch.zeros(1))) is None
    assert version_conflict(_raised(torch.jit.trace, Wrong(), torch.zeros(1))) is None


def test_wrong_signature_of_a_users_patch_is_none() -> None:
    """The call of a replacement is in mmexport's own file, and the function is the user's."""
    from collections import Counter

    from mmexport.patching.targets import _counted
    assert version_conflict(_raised(_counted(lambda x: x, Counter(), 'op'), 1, scale=2)) is None


def test_a_missing_module_imported_by_name_is_a_conflict(tmp_path: Path) -> None:
    """As onnxscript 0.5 does with torch 2.13: ``importlib.import_module('onnxscript._framework_apis.torch_2_11')``."""
    file = tmp_path / 'site-packages' / 'onnxscript' / 'asking.py'
    code = compile('import importlib\nimportlib.import_module("onnxscript._framework_apis.torch_0_1")', str(file), 'exec')
    assert "No module named 'onnxscript._framework_apis.torch_0_1'" in str(version_conflict(_raised(exec, code)))


def test_missing_module_of_torch_is_a_conflict() -> None:
    code = compile('import torch.no_such_module', torch_versions.__file__, 'exec')
    assert 'no_such_module' in str(version_conflict(_raised(exec, code)))
    assert version_conflict(_raised(exec, 'import no_such_package')) is None


def test_torchscript_imports_nothing_of_other_formats() -> None:
    """What a format needs is imported when that format is asked for."""
    code = ('import sys, torch\n'
            'before = set(sys.modules)\n'
            'import mmexport.export.exporter\n'
            'from mmexport.backends import build_backend\n'
            'build_backend("torchscript")\n'
            'heavy = ("onnx", "onnxscript", "onnxruntime", "openvino", "torch_tensorrt", "torch._inductor",\n'
            '         "torch._dynamo", "torch.onnx", "torch.export")\n'
            'print([name for name in heavy if name in set(sys.modules) - before])\n')
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == '[]'


@pytest.mark.slow
def test_a_torchscript_run_imports_no_other_runtime(tmp_path: Path) -> None:
    """torch imports parts of its own (torch._dynamo, torch.export); packages of other formats stay out, in the checker's process too."""
    code = ('import sys\n'
            'import torch.distributed.fsdp\n'  # mmengine imports it, and in torch 2.1 it imports all of these that are installed.
            'before = set(sys.modules)\n'
            'from mmexport import Exporter\n'
            'from tests.tiny import seeded, tiny\n'
            f'report, = Exporter(tiny("fcn", backends=["torchscript"]), model=seeded("fcn"), work_dir={str(tmp_path)!r}).run()\n'
            'others = ("onnx", "onnxscript", "onnxruntime", "openvino", "torch_tensorrt")\n'
            'print(report.passed, [name for name in others if name in set(sys.modules) - before])\n')
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == 'True []'


def test_import_of_the_package_needs_no_torch() -> None:
    done = subprocess.run([sys.executable, '-c', 'import sys, mmexport; print("torch" in sys.modules)'], capture_output=True, text=True,
                          check=True)
    assert done.stdout.strip() == 'False'
