"""Test the formats beside TorchScript: small models of the real architectures, checked as a user's export is."""
from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils._sympy.value_ranges import ValueRanges

from mmexport import Exporter
from mmexport.adapters import build_adapter
from mmexport.backends import build_backend, installed_backends, named_backends
from mmexport.backends.exported.program import exported_program
from mmexport.backends.exported.valid_sizes import valid_ranges
from mmexport.backends.onnx.graph import nodes
from mmexport.errors import LoweringError, SetupError
from mmexport.inputs.synthetic import picture
from mmexport.ops.deformable_attention import SAMPLINGS, sampled
from mmexport.ops.op import with_forms
from mmexport.patching import patched
from mmexport.report.facts import Report
from tests.tiny import SHAPE, seeded, tiny

FORMATS = ['onnx', 'torch_export', 'openvino']
AXES = ('batch', 'height', 'width')
CLASSES = [f'class {number}' for number in range(19)]


@pytest.fixture(scope='module')
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    cfg = tiny('fcn', backends=['torchscript', *FORMATS])
    model = copy.deepcopy(seeded('fcn'))
    model.dataset_meta = dict(classes=CLASSES)  # type: ignore[assignment]
    return Exporter(cfg, work_dir=tmp_path_factory.mktemp('formats'), model=model).run()[0]


def test_one_run_makes_and_checks_every_format(report: Report) -> None:
    assert report.passed, report.reasons
    assert [check.backend for check in report.checks] == ['torchscript', *FORMATS]
    for check in report.checks:
        assert {row.sample for row in check.rows} >= {'traced', '161x97', 'batch 3'}
    table = '\n'.join(report.lines())
    assert max(map(len, table.splitlines())) <= 80 + len(str(report.work_dir))
    lines = {line.split()[0]: line.split() for line in table[table.index('format '):].splitlines() if line}
    for name in ('torchscript', *FORMATS):
        assert lines[name][3] == 'pass'
        assert float(lines[name][5]) > 0
        # One line a format that passes; all its rows, and how it was made, with --verbose.
        assert sum(line.startswith(name) for line in table.splitlines()) == 1
    verbose = '\n'.join(report.lines(verbose=True))
    assert 'conv+bn folded' in verbose and 'conv+bn folded' not in table
    assert verbose.count('\n  161x97 ') >= len(report.checks) and '\n  161x97 ' not in table


@pytest.mark.parametrize('name', FORMATS)
def test_a_folder_is_checked_from_its_files_alone(report: Report, name: str) -> None:
    folder = report.work_dir / name
    command = [sys.executable, 'tools/verify.py', str(folder)]
    if name == 'torch_export':
        # Its loader runs code of the file.
        assert subprocess.run(command, capture_output=True, check=False).returncode == 2
        command.append('--trust')
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    actual = json.loads((folder / 'report.json').read_text())
    assert next(row for row in actual['artifacts'] if row['backend'] == name)['result']['foreign_modules'] == []


def test_weights_beside_the_graph_are_part_of_the_file(report: Report, tmp_path: Path) -> None:
    """OpenVINO's weights lie in a .bin: another one there is a stale artifact."""
    import shutil
    folder = shutil.copytree(report.work_dir / 'openvino', tmp_path / 'openvino')
    weights = folder / 'model.bin'
    assert 'model.bin' in json.loads((folder / 'manifest.json').read_text())['also']
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    done = subprocess.run([sys.executable, 'tools/verify.py', str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'model.bin is not the file of this manifest' in done.stdout


def test_onnx_has_standard_operators_and_open_sizes(report: Report) -> None:
    import onnx
    proto = onnx.load(report.work_dir / 'onnx' / 'model.onnx')
    assert {entry.domain for entry in proto.opset_import} == {''}
    assert {node.domain for node in nodes(proto)} <= {'', 'ai.onnx'}
    assert proto.opset_import[0].version == 18
    axes = proto.graph.input[0].type.tensor_type.shape.dim
    assert [axis.dim_param or axis.dim_value for axis in axes] == ['batch', 3, 'height', 'width']
    told = {entry.key: json.loads(entry.value) for entry in proto.metadata_props}
    assert told['task'] == 'semantic'
    assert told['classes'] == CLASSES
    assert told['onnx']['opset'] == 18


def test_programs_are_shared_between_formats_and_open() -> None:
    adapter = build_adapter(seeded('fcn'), outputs='raw')
    image = picture(SHAPE, 0, adapter)
    with patched('auto'):
        program = exported_program(adapter, image, AXES)
        assert exported_program(adapter, image, AXES) is program
    symbols = [str(side) for side in next(iter(node for node in program.graph.nodes if node.name == 'image')).meta['val'].shape]
    assert symbols[1] == '3'
    assert not any(side.isdigit() for side in (symbols[0], *symbols[2:]))


@pytest.mark.parametrize('form', SAMPLINGS)
def test_a_backend_prefers_a_form_of_the_deformable_attention(form: str) -> None:
    torch.manual_seed(0)
    given = (torch.randn(2, 13, 2, 4), [(3, 3), (2, 2)], torch.randn(2, 5, 2, 2, 3, 2), torch.rand(2, 5, 2, 2, 3), torch.rand(2, 5, 2, 2))
    plain = sampled(*given)
    with with_forms(deformable_attention=form):
        assert torch.equal(sampled(*given), SAMPLINGS[form](*given))
    assert float((SAMPLINGS[form](*given) - plain).abs().max()) <= 2e-6 * float(plain.abs().max())


class Branching(nn.Module):
    """Decide by a size: the model is another one at another size."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Identity()

    def forward(self, image: Tensor) -> Tensor:
        return image * 2 if image.shape[2] != 96 else image * 3


def test_a_size_that_the_model_itself_asks_for_is_refused() -> None:
    program = exported_program(Branching(), torch.zeros(1, 3, 128, 128), AXES)  # type: ignore[arg-type]
    run = program.module()
    assert torch.equal(run(torch.ones(3, 3, 70, 90)), torch.full((3, 3, 70, 90), 2.0))
    with pytest.raises(Exception, match='96'):
        run(torch.ones(1, 3, 96, 90))


@pytest.mark.parametrize('attention', ['swin', 'twins'])
def test_a_size_that_only_torch_asks_for_is_taken(attention: str) -> None:
    """One window in the last stage, whole windows and padded ones; the program is made with several that are padded."""
    from mmseg.models.backbones.swin import ShiftWindowMSA
    from mmseg.models.backbones.twins import LocallyGroupedSelfAttention
    with patched('auto'):
        layer = ShiftWindowMSA(8, 2, 7, shift_size=3) if attention == 'swin' else LocallyGroupedSelfAttention(8, 2, window_size=7)
        module = Windows(layer.eval())
        program = exported_program(module, torch.zeros(1, 3, 128, 128), AXES)  # type: ignore[arg-type]
    for size in ((2, 3, 64, 64), (1, 3, 500, 70), (2, 3, 448, 500), (1, 3, 448, 224)):
        image = torch.randn(size)
        with torch.no_grad():
            assert torch.allclose(program.module()(image), module(image), atol=1e-6)


class Windows(nn.Module):
    """Pool the picture to a thirty-second, as a backbone would."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.model = attention

    def forward(self, image: Tensor) -> Tensor:
        x = nn.functional.avg_pool2d(image, 32).repeat(1, 3, 1, 1)[:, :8]
        return self.model(x.flatten(2).transpose(1, 2), (x.shape[2], x.shape[3]))


class Fixing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Identity()

    def forward(self, image: Tensor) -> Tensor:
        return image * int(image.shape[3])


def test_an_axis_that_becomes_a_constant_is_an_error() -> None:
    with pytest.raises(LoweringError, match='fixes width'):
        exported_program(Fixing(), torch.zeros(1, 3, 128, 128), AXES)  # type: ignore[arg-type]


class Asking(nn.Module):
    """Decide by values, which an exported program cannot."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) if float(x.sum()) > 0 else self.inner(-x)


def test_one_failed_format_does_not_stop_the_others(tmp_path: Path) -> None:
    model = seeded('fcn')
    head = model.decode_head
    plain = head.conv_seg
    try:
        head.conv_seg = Asking(plain)
        report, = Exporter(tiny('fcn', outputs='raw', backends=['torchscript', 'torch_export']), work_dir=tmp_path, model=model).run()
    finally:
        head.conv_seg = plain
    assert list(report.failures) == ['torch_export']
    assert report.passed is False
    assert 'torch.export of EncoderDecoder failed' in report.reasons[0]
    assert any(line.split()[-2:] == ['not', 'made'] for line in report.lines() if line.startswith('torch_export '))


def test_missing_package_is_named_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('mmexport.backends.openvino.backend.find_spec', lambda name: None)
    with pytest.raises(SetupError, match='pip install openvino'):
        build_backend('openvino')
    assert 'openvino' not in installed_backends()
    assert installed_backends()[0] == 'torchscript'


def test_a_torch_without_open_sizes_still_has_torchscript(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch 2.1 has no torch.export.Dim; what needs it says so, and the rest is not touched."""
    monkeypatch.delattr(torch.export, 'Dim')
    assert installed_backends() == ['torchscript', 'onnx', 'openvino']
    with pytest.raises(SetupError, match="pip install 'torch>=2.8'"):
        build_backend('torch_export')


def test_the_manifest_has_the_ranges_that_the_program_holds_for() -> None:
    adapter = build_adapter(seeded('fcn'), outputs='raw')
    with patched('auto'):
        program = exported_program(adapter, torch.zeros(SHAPE), AXES)
    actual = valid_ranges(program, torch.zeros(SHAPE), AXES)
    assert actual == {'batch': (1, 64), 'height': (64, 4096), 'width': (64, 4096)}
    image = next(node for node in program.graph.nodes if node.name == 'image')
    program.range_constraints[image.meta['val'].shape[2].node.expr] = ValueRanges(96, 2048)
    assert valid_ranges(program, torch.zeros(SHAPE), AXES)['height'] == (96, 2048)


def test_what_is_named_beside_all_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('mmexport.backends.building.installed_backends', lambda: ['torchscript', 'onnx'])
    assert named_backends(['all']) == ['torchscript', 'onnx']
    assert named_backends(['onnx', 'all', 'tensorrt']) == ['torchscript', 'onnx', 'tensorrt']
