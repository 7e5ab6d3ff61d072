"""Test files that must not be made, and what one format that breaks costs the others: nothing."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mmexport import Exporter
from mmexport.adapters import build_adapter
from mmexport.backends import build_backend
from mmexport.backends.onnx.internals.converting import converted
from mmexport.backends.openvino.backend import OpenVINO
from mmexport.errors import LoweringError
from mmexport.inputs.synthetic import picture
from mmexport.patching import patched
from mmexport.report.facts import NAMED
from mmexport.verification.test_step import PipelineCheck
from tests.tiny import SHAPE, seeded, tiny

AXES = ('batch', 'height', 'width')


def test_a_file_that_nobody_can_read_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, photograph_file: Path) -> None:
    from mmexport.backends.onnx.backend import ONNX
    monkeypatch.setattr(ONNX, '_save', lambda self, proto, path, manifest: path.write_bytes(b'no graph'))
    cfg = tiny('fcn', backends=['onnx', 'torchscript'], outputs='final', inputs=dict(image=str(photograph_file)))
    actual, = Exporter(cfg, work_dir=tmp_path, model=seeded('fcn'), diagnose=False).run()
    assert [check.passed for check in actual.checks] == [False, True]
    assert all(row.passed for row in actual.pipelines)
    assert (tmp_path / 'torchscript' / 'model.pt').is_file()
    assert (tmp_path / 'failed' / 'onnx').is_dir()


def test_where_test_step_disagrees_no_format_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapter is then wrong, and every file agrees with the adapter."""
    monkeypatch.setattr('mmexport.verification.reference_maker.check_sample',
                        lambda adapter, sample, *args: PipelineCheck(sample.name, 0.5, 'half of it', own=('Own.predict (own.py:3)',)))
    cfg = tiny('fcn', backends=['onnx', 'torchscript'], outputs='final')
    actual, = Exporter(cfg, work_dir=tmp_path, model=seeded('fcn'), diagnose=False).run()
    assert 'test_step on traced: half of it' in actual.reasons
    assert not (tmp_path / 'torchscript').exists()
    assert (tmp_path / 'failed' / 'onnx').is_dir()
    assert len([reason for reason in actual.reasons if reason.startswith('test_step on ')]) == NAMED + 1
    assert actual.reasons[-2:] == [f'test_step on {len(actual.pipelines) - NAMED} more inputs, see report.json',
                                   'code of yours that test_step runs, and a file may not have: Own.predict (own.py:3)']
    assert [line for line in actual.lines() if line.startswith('test_step: FAIL on ')]


def test_outputs_go_by_the_names_of_the_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker reads answers by their place, and a user by their names."""
    convert = OpenVINO.convert
    monkeypatch.setattr(OpenVINO, 'convert', lambda self, program, folder, names, *more: convert(self, program, folder, names[::-1], *more))
    actual, = Exporter(tiny('fcn', backends=['openvino'], outputs='final'), work_dir=tmp_path, model=seeded('fcn'), diagnose=False).run()
    assert actual.passed is False
    assert 'the outputs of the file are named' in actual.reasons[0]
    assert 'and the manifest has labels, scores' in actual.reasons[0]


def test_file_that_crashes_its_process_is_not_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not to look for the module either, which would cost the user the report."""
    monkeypatch.setattr('mmexport.verification.checker_process.CheckerProcess.run',
                        lambda self, arguments: (-11, 'Fatal Python error: Segmentation fault'))
    monkeypatch.setattr('mmexport.backends.base.load', lambda *args: pytest.fail('it was loaded'))
    actual, = Exporter(tiny('fcn', backends=['onnx'], outputs='raw'), work_dir=tmp_path, model=seeded('fcn')).run()
    assert actual.passed is False
    assert 'died with code -11' in actual.reasons[0]
    assert actual.diagnoses[0].cause == 'a crash of the runtime'
    assert (tmp_path / 'failed' / 'onnx' / 'report.json').is_file()


def test_an_error_in_one_converter_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mmexport.backends.torchscript.backend import TorchScript

    def broken(*args: object) -> None:
        raise IndexError('out of range in the converter')

    monkeypatch.setattr(TorchScript, 'lower', broken)
    cfg = tiny('fcn', backends=['torchscript', 'torch_export'], outputs='raw')
    actual, = Exporter(cfg, work_dir=tmp_path, model=seeded('fcn'), diagnose=False).run()
    assert actual.failures == {'torchscript': 'torchscript failed: IndexError: out of range in the converter'}
    assert [check.passed for check in actual.checks] == [True]
    assert actual.passed is False


def test_an_operator_that_is_no_standard_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = build_adapter(seeded('fcn'), outputs='raw')
    backend = build_backend('onnx')
    original = type(backend)._finished

    def with_a_stranger(self: object, proto: object, *args: object) -> object:
        proto, kept = original(self, proto, *args)  # type: ignore[arg-type]
        proto.graph.node[0].domain = 'com.example'
        return proto, kept

    monkeypatch.setattr(type(backend), '_finished', with_a_stranger)
    with patched('auto'), pytest.raises(LoweringError, match='com.example'):
        backend.lower(adapter, picture(SHAPE, 0, adapter), tmp_path / 'onnx', dict(inputs=[dict(dynamic=list(AXES))]))


def test_another_opset_than_was_asked_for_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exporter leaves a graph at 18 that it cannot convert, and warns in its log alone."""
    adapter = build_adapter(seeded('fcn'), outputs='raw')
    monkeypatch.setattr('mmexport.backends.onnx.backend.converted', lambda program, opset, *names: converted(program, 18, *names))
    backend, manifest = build_backend(dict(type='ONNX', opset=16)), dict(inputs=[dict(dynamic=list(AXES))])
    with patched('auto'), pytest.raises(LoweringError, match='opset 16 was asked for and the exporter wrote 18'):
        backend.lower(adapter, torch.zeros(SHAPE), tmp_path, manifest)
