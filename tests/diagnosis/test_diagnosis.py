"""Each planted fault is found at its module, at its line where the exporter lets it be known, and is named."""
from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mmexport import Exporter
from mmexport.adapters import Adapter
from mmexport.artifact import Artifact
from mmexport.backends import Backend
from mmexport.backends.base import availability
from mmexport.backends.onnx.backend import ONNX
from mmexport.backends.openvino.backend import OpenVINO
from mmexport.backends.torchscript.backend import TorchScript
from mmexport.diagnosis import Diagnosis
from mmexport.diagnosis.repro import _read, alone, same_error
from mmexport.model.build import build_model
from mmexport.model.config import load_config
from mmexport.patching import Patch
from mmexport.registry import BACKENDS, PATCHES
from tests.diagnosis.planted import CONFIG, FAULTS, Fault
from tests.programs import needs_program
from tests.tiny import seeded, tiny


def diagnosed(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str,
              **section: Any) -> tuple[list[Diagnosis], Path]:
    if reason := availability().get(fault.backend):
        pytest.skip(reason)
    source = tmp_path / f'{name}.py'
    fault.write(source)
    config = tmp_path / 'config.py'
    config.write_text(CONFIG.format(module=name))
    monkeypatch.syspath_prepend(str(tmp_path))
    cfg = load_config(config)
    cfg.export.update(backends=[fault.backend])
    cfg.export.update(section)
    report, = Exporter(cfg, work_dir=tmp_path / 'work').run()
    assert report.passed is False
    assert report.as_dict()['diagnoses']
    assert any(line.startswith('diagnosis of') for line in report.lines())
    return list(report.diagnoses), source


@pytest.mark.parametrize('name', FAULTS)
def test_a_planted_fault_is_found_at_its_module_and_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[name]
    actual, source = diagnosed(fault, tmp_path, monkeypatch, f'diagnosed_{list(FAULTS).index(name)}')
    assert len(actual) == 1
    row = actual[0]
    assert (row.module, row.stage, row.cause) == (fault.module, fault.stage, fault.cause), '\n'.join(row.lines())
    assert row.remedy
    assert row.repro or fault.cause == 'in-place on the input'
    assert row.file == str(source)
    if fault.marked:
        assert row.line == fault.line(source), '\n'.join(row.lines())


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
    assert alone(tmp_path / 'repro.py', actual) == shown


class Spoiled(Backend):
    """A backend that gets one module wrong: `spoil` changes it in a copy of the model, before it is lowered."""

    def __init__(self, spoil: str) -> None:
        super().__init__()
        self.spoil = SPOILS[spoil]

    def lower(self, adapter: Adapter, example: Tensor, folder: Path, manifest: dict[str, Any]) -> Artifact:
        adapter = copy.deepcopy(adapter)
        self.spoil(adapter.model)
        return super().lower(adapter, example, folder, manifest)


@BACKENDS.register_module()
class Mistaken(Spoiled, TorchScript):
    pass


@BACKENDS.register_module()
class MistakenONNX(Spoiled, ONNX):
    pass


@BACKENDS.register_module()
class MistakenOpenVINO(Spoiled, OpenVINO):
    pass


def _one_percent(model: Any) -> None:
    model.backbone.layer2[0].conv1.weight.data.mul_(1.01)


def _deepest_constant(model: Any) -> None:
    model.panoptic_head.transformer_decoder.layers[-1].norms[-1].bias.data[3] += 0.2


def _second_call(model: Any) -> None:
    """The head's prediction branch is called once for each decoder layer; it is wrong from the second call on."""
    layer, calls = model.panoptic_head.mask_embed[0], [0]
    right = type(layer).forward

    def forward(x: Tensor) -> Tensor:
        calls[0] += 1
        return right(layer, x) * (1.0 if calls[0] == 1 else 1.05)
    layer.forward = forward


SPOILS: dict[str, Any] = {'a layer 1% off': _one_percent, 'a wrong constant in the deepest decoder layer': _deepest_constant,
                          'a module wrong on its second call': _second_call}


@pytest.mark.parametrize(('backend', 'spoil', 'name', 'module'), [
    ('Mistaken', 'a layer 1% off', 'fcn', 'backbone.layer2.0.conv1'),
    ('MistakenONNX', 'a layer 1% off', 'fcn', 'backbone.layer2.0.conv1'),
    ('MistakenOpenVINO', 'a layer 1% off', 'fcn', 'backbone.layer2.0.conv1'),
    ('Mistaken', 'a wrong constant in the deepest decoder layer', 'mask2former_r50', 'panoptic_head.transformer_decoder.layers.5.norms.2'),
    ('Mistaken', 'a module wrong on its second call', 'mask2former_r50', 'panoptic_head.mask_embed.0, call 2')])
def test_what_the_lowering_got_wrong_is_found(backend: str, spoil: str, name: str, module: str, tmp_path: Path) -> None:
    exporter = Exporter(tiny(name, outputs='raw', backends=[dict(type=backend, spoil=spoil)]), model=seeded(name), work_dir=tmp_path)
    report, = exporter.run()
    assert not report.passed
    row, = report.diagnoses
    assert (row.stage, row.module) == ('file', module), '\n'.join(row.lines())
    assert row.cause == 'the conversion'


@PATCHES.register_module()
class LosesItsCast(Patch):
    """What a careless patch does: the sum that its author took in double is taken of bfloat16."""

    targets = ('diagnosed_cast.Own.forward',)
    upstream = 'this test'

    def replacement(self, target: str, original: Any) -> Any:
        return lambda module, x: module.mix(x.bfloat16().float().cumsum(3))


def test_a_lost_cast_in_a_patch_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Fault('torchscript', 'own', 'x = x.double().cumsum(3).float()', 'neck.own', 'a patch', 'patched')
    actual, _ = diagnosed(fault, tmp_path, monkeypatch, 'diagnosed_cast', patches=['auto', 'LosesItsCast'])
    assert [(row.stage, row.module, row.cause) for row in actual] == [('patched', 'neck.own', 'a patch')]


def test_a_cast_that_the_lowering_lost_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(model: Any) -> None:
        own = model.neck.own
        own.forward = lambda x: own.mix(x.bfloat16().float().cumsum(3))

    monkeypatch.setitem(SPOILS, 'a lost cast', half)
    fault = Fault('torchscript', 'own', 'x = x.double().cumsum(3).float()', 'neck.own', 'the conversion', 'file')
    actual, _ = diagnosed(fault, tmp_path, monkeypatch, 'diagnosed_lost', backends=[dict(type='Mistaken', spoil='a lost cast')])
    assert [(row.stage, row.module, row.cause) for row in actual] == [(fault.stage, fault.module, fault.cause)]


def test_a_healthy_model_says_so(tmp_path: Path) -> None:
    exporter = Exporter(tiny('fcn', outputs='raw'), model=seeded('fcn'), work_dir=tmp_path)
    report, = exporter.run()
    assert report.passed
    assert report.diagnoses == ()


@needs_program
def test_without_diagnosis_the_failure_stands_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = FAULTS['a branch on a sum in a head']
    source.write(tmp_path / 'undiagnosed.py')
    (tmp_path / 'config.py').write_text(CONFIG.format(module='undiagnosed'))
    monkeypatch.syspath_prepend(str(tmp_path))
    cfg = load_config(tmp_path / 'config.py')
    cfg.export.backends = ['torch_export']
    report, = Exporter(cfg, work_dir=tmp_path / 'work', diagnose=False).run()
    assert report.diagnoses == ()
    (left,) = (tmp_path / 'work' / 'failed').iterdir()
    kept = json.loads(left.read_text())
    assert (left.name, kept['passed'], list(kept['failures'])) == ('report.json', False, ['torch_export'])


@needs_program
def test_the_door(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from mmexport.cli.main import run
    from mmexport.seeding import seed_model
    source = tmp_path / 'diagnosed_door.py'
    FAULTS['a branch on a sum in a head'].write(source)
    (tmp_path / 'config.py').write_text(CONFIG.format(module='diagnosed_door'))
    sys.path.insert(0, str(tmp_path))
    try:
        model = build_model(load_config(tmp_path / 'config.py'))
        seed_model(model, size=(64, 96))
        torch.save({'state_dict': model.state_dict()}, tmp_path / 'c.pth')
        common = [str(tmp_path / 'config.py'), str(tmp_path / 'c.pth'), '--work-dir', str(tmp_path / 'w')]
        assert run(['diagnose', *common, '--backend', 'torch_export', '--json', str(tmp_path / 'found.json')]) == 1
        messages = capsys.readouterr().out
        assert 'decode_head (OwnHead)' in messages
        assert 'data-dependent Python' in messages
        assert (tmp_path / 'w' / 'failed' / 'repro_torch_export.py').is_file()
        assert json.loads((tmp_path / 'found.json').read_text())[0]['module'] == 'decode_head'
        assert run(['diagnose', *common, '--backend', 'torchscript']) == 0
        assert 'nothing is wrong' in capsys.readouterr().out
    finally:
        sys.path.remove(str(tmp_path))


def test_a_diagnosis_that_fails_costs_nothing_but_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*args: Any, **kwargs: Any) -> Any:
        raise KeyError('a mistake')

    monkeypatch.setattr('mmexport.diagnosis.session.why_wrong', breaks)
    exporter = Exporter(tiny('fcn', outputs='raw', backends=[dict(type='Mistaken', spoil='a layer 1% off')]), model=seeded('fcn'),
                        work_dir=tmp_path)
    report, = exporter.run()
    assert report.passed is False
    assert 'off by' in ' '.join(report.reasons)
    assert 'it failed itself' in '\n'.join(report.lines())
    assert (tmp_path / 'failed' / 'torchscript' / 'model.pt').is_file()
