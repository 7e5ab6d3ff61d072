"""Test formats without an exported program: the installed torch cannot leave sizes open in it, so they go through a trace."""
from __future__ import annotations

from pathlib import Path

import pytest

from mmexport import Exporter
from mmexport.backends import build_backend
from mmexport.backends.building import availability
from mmexport.backends.exported.from_trace import with_axes_apart
from mmexport.errors import SetupError
from tests.detectors import seeded_detector, tiny_detector
from tests.tiny import seeded, tiny


@pytest.fixture
def old_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report that sizes cannot be left open, as torch 2.6 and older."""
    monkeypatch.setattr('mmexport.backends.exported.program.exporter', lambda: None)


@pytest.mark.usefixtures('old_torch')
@pytest.mark.parametrize('name', ['segformer_b0', pytest.param('mask2former_r50', marks=pytest.mark.slow)])
def test_onnx_and_openvino_are_right_without_a_program(name: str, tmp_path: Path) -> None:
    """At untraced sizes and in a batch; the manifest says which exporter wrote the file, and why."""
    report, = Exporter(tiny(name, backends=['onnx', 'openvino'], outputs='final'), None, tmp_path, model=seeded(name)).run()
    assert report.passed, report.reasons
    for artifact in report.artifacts:
        facts = artifact.manifest[artifact.backend]
        assert facts['exporter'] == 'torch.onnx.export, TorchScript-based'
        assert 'cannot leave the sizes of an exported program open' in facts['why_traced']


@pytest.mark.slow
@pytest.mark.usefixtures('old_torch')
def test_regions_and_suppression_need_no_program(tmp_path: Path) -> None:
    report, = Exporter(tiny_detector('mask_rcnn', backends=['onnx']), None, tmp_path, model=seeded_detector('mask_rcnn')).run()
    assert report.passed, report.reasons


@pytest.mark.slow
def test_a_loop_that_is_not_translated_is_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exporter of programs in torch 2.8 has no translation of it."""
    monkeypatch.setattr('mmexport.backends.onnx.backend.translates_loops', lambda: False)
    report, = Exporter(tiny_detector('retinanet', backends=['onnx']), None, tmp_path, model=seeded_detector('retinanet')).run()
    assert report.passed, report.reasons
    facts = report.artifacts[0].manifest['onnx']
    assert facts['exporter'] == 'torch.onnx.export, TorchScript-based'
    assert 'no translation of while_loop' in facts['why_traced']


def test_each_map_has_axes_of_its_own() -> None:
    """Of the same name they are one size to ONNX Runtime, and maps of several levels are not."""
    from onnx import TensorProto, helper
    image = helper.make_tensor_value_info('input', TensorProto.FLOAT, ['batch', 3])
    maps = [helper.make_tensor_value_info(f'scores_{level}', TensorProto.FLOAT, ['batch', 4, 'Conv_dim_2']) for level in range(2)]
    with_axes_apart(proto := helper.make_model(helper.make_graph([], 'maps', [image], maps)))
    axes = [[axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim] for value in proto.graph.output]
    assert axes == [['batch', 4, 'scores_0_2'], ['batch', 4, 'scores_1_2']]


@pytest.mark.usefixtures('old_torch')
def test_formats_that_need_a_program_say_so() -> None:
    reasons = availability()
    assert reasons['onnx'] is reasons['openvino'] is reasons['torchscript'] is None
    for name in ('torch_export', 'aotinductor'):
        assert 'cannot leave the sizes' in str(reasons[name])
        with pytest.raises(SetupError, match='cannot leave the sizes'):
            build_backend(name)


def test_the_program_is_taken_where_there_is_one() -> None:
    assert build_backend('onnx').dynamo  # type: ignore[attr-defined]
    assert build_backend('openvino').dynamo  # type: ignore[attr-defined]
    assert not build_backend(dict(type='ONNX', dynamo=False)).dynamo  # type: ignore[attr-defined]


def test_the_lowest_versions_are_written(tmp_path: Path) -> None:
    """ONNX Runtime 1.17, the oldest that setup.py names, reads version 9 of the format at most."""
    import onnx
    report, = Exporter(tiny('fcn', backends=['onnx']), None, tmp_path, model=seeded('fcn'), checking=False).run()
    proto = onnx.load(report.artifacts[0].file)
    assert (proto.ir_version, [entry.version for entry in proto.opset_import if not entry.domain]) == (8, [18])
    assert report.artifacts[0].manifest['onnx']['ir'] == 8
