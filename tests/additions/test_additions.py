"""Test that a task with a kind of its own, a format and an op are registered from outside the package; nothing in it changes for them."""
from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import onnx
import pytest
import torch

from mmexport import Exporter
from mmexport.checker import files, kinds
from mmexport.checker.kinds import kind_of
from mmexport.checker.samples import read_samples
from mmexport.errors import ConfigError
from mmexport.ops.op import _OPS
from mmexport.registry import ADAPTERS, BACKENDS, PATCHES
from mmexport.report.facts import Report
from tests.tiny import seeded, tiny

HERE = Path(__file__).parent
# One worker runs them: they share an export.
pytestmark = pytest.mark.xdist_group('additions')
FORMATS = ['torchscript', 'onnx', 'torch_export', 'openvino']


@pytest.fixture(scope='module', autouse=True)
def registered() -> Iterator[None]:
    """Import the three, as a config's ``custom_imports`` does, and take them out of the registries for the tests after these."""
    for name in ('changes', 'clips', 'gram', 'moving', 'plain_trace.backend', 'rectified'):
        import_module(f'tests.additions.{name}')
    yield
    for registry, names in ((ADAPTERS, ('Changes', 'Clips', 'Gram', 'Moving')), (BACKENDS, ('PlainTrace',)), (PATCHES, ('Rectified',))):
        for name in names:
            del registry.module_dict[name]
    del _OPS['rectified']
    # An adapter makes its kinds known where it is built, and a backend its runner.
    kinds._others.pop('likeness', None)
    files._others.pop('plain_trace', None)


def export(work_dir: Path, **section: object) -> Report:
    cfg = tiny('fcn', **section)
    return Exporter(cfg, model=seeded('fcn'), work_dir=work_dir, diagnose=False).run()[0]


@pytest.mark.parametrize('backend', ['torchscript', 'plain_trace', 'onnx'])
def test_a_task_with_a_kind_of_its_own_is_exported_and_checked(backend: str, tmp_path: Path) -> None:
    report = export(tmp_path, task='Gram', backends=[backend])
    assert report.passed, report.reasons
    rows = report.checks[0].rows
    assert {(row.output, row.kind) for row in rows} == {('gram', 'likeness')}
    assert len(rows) > 4
    assert max(row.max_rel or 0.0 for row in rows) < 1e-4


@pytest.fixture(scope='module')
def moving(registered: None, tmp_path_factory: pytest.TempPathFactory) -> Report:
    return export(tmp_path_factory.mktemp('moving'), task='Moving', backends=[*FORMATS, 'plain_trace'])


def test_a_task_with_two_inputs_is_exported_and_checked(moving: Report) -> None:
    """The first has five axes; both names, their shapes and the axes that follow the picture are in the manifest."""
    assert moving.passed, moving.reasons
    assert len(moving.artifacts) == 5
    assert len({tuple(shape[2:]) for shape in moving.inputs.values()}) > 4
    for artifact in moving.artifacts:
        earlier, image = artifact.manifest['inputs']
        assert (image['name'], earlier['name'], earlier['traced'][1:3]) == ('image', 'earlier', [2, 3])
        assert earlier['dynamic'] == image['dynamic'] == ['batch', 'height', 'width']
        samples, _ = read_samples(artifact.folder / 'samples.npz')
        assert [tensor.dim() for tensor in samples[0].file_inputs] == [5, 4]


@pytest.mark.parametrize('backend', [*FORMATS, 'plain_trace'])
def test_a_file_with_two_inputs_is_checked_from_its_folder(backend: str, moving: Report) -> None:
    folder = next(artifact.folder for artifact in moving.artifacts if artifact.backend == backend)
    command = [sys.executable, str(HERE.parents[1] / 'tools' / 'verify.py'), str(folder), '--trust', '--kind',
               f"likeness={HERE / 'likeness.py'}"]
    command += ['--runner', str(HERE / 'plain_trace' / 'runner.py')] if backend == 'plain_trace' else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize('backend', ['torchscript', 'onnx'])
def test_a_task_whose_only_input_is_a_clip_is_exported(backend: str, tmp_path: Path) -> None:
    report = export(tmp_path, task='Clips', backends=[backend])
    assert report.passed, report.reasons
    clip, = report.artifacts[0].manifest['inputs']
    assert (clip['name'], len(clip['traced']), clip['dynamic']) == ('clip', 5, ['batch', 'height', 'width', 'time'])
    assert clip['ranges']['time'] == [3, 5]
    assert len({tuple(shape) for shape in report.inputs.values()}) > 4


@pytest.mark.parametrize('backend', ['torchscript', 'plain_trace'])
def test_a_task_with_final_decisions_is_compared_with_test_step(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ``test_step`` takes both inputs; another decision than the model's own fails."""
    from tests.additions.changes import ChangeNet, Changes

    def exported() -> Report:
        return Exporter(tiny('fcn', backends=[backend]), model=ChangeNet().eval(), work_dir=tmp_path, diagnose=False).run()[0]

    report = exported()
    assert report.task == 'changes'
    assert report.passed, report.reasons
    assert sum(check.passed is True for check in report.pipelines) > 4
    if backend == 'torchscript':
        monkeypatch.setattr(Changes, 'read', lambda self, samples: dict(change=torch.stack([each.change.flip(1) for each in samples])))
        assert any('test_step' in reason for reason in exported().reasons)


def test_an_axis_of_its_own_is_open_within_its_range(tmp_path: Path) -> None:
    from tests.additions.changes import ChangeNet
    model = ChangeNet().eval()
    report, = Exporter(tiny('fcn', backends=FORMATS), model=model, work_dir=tmp_path, diagnose=False).run()
    assert report.passed, report.reasons
    assert [artifact.backend for artifact in report.artifacts] == FORMATS
    image, frames = torch.rand(1, 3, 136, 150), torch.rand(1, 8, 3, 136, 150)
    with torch.no_grad():
        expected = model((image, frames[:, :4]), mode='predict')[0].change
    for artifact in report.artifacts:
        earlier = artifact.manifest['inputs'][1]
        assert (earlier['dynamic'], earlier['ranges']['time']) == (['batch', 'height', 'width', 'time'], [3, 5])
        run = files.load(artifact.folder, artifact.manifest, torch.device('cpu'))
        assert torch.as_tensor(run(image, frames[:, :4])[0][0]).allclose(expected, atol=1e-4)
        with pytest.raises(Exception, match='time'):
            run(image, frames)


def test_an_open_axis_must_be_tried_at_several_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.additions.changes import ChangeNet, Changes
    monkeypatch.setattr(Changes, 'inputs_of', lambda self, picture: (picture, torch.stack([picture, picture], dim=1)))
    with pytest.raises(ConfigError, match='axis time of earlier is open from 2 to 8, and Changes.inputs_of made inputs with 2'):
        Exporter(tiny('fcn', backends=['torchscript']), model=ChangeNet().eval(), work_dir=tmp_path).run()


@pytest.mark.parametrize(('frames', 'size', 'words'), [(2, (128, 160), None), (3, (128, 160), 'axis time of earlier has size 3'),
                                                       (2, (128, 161), 'size')])
def test_a_file_with_two_inputs_refuses_what_does_not_fit(frames: int, size: tuple[int, int], words: str | None, moving: Report) -> None:
    file = torch.jit.load(str(next(artifact.file for artifact in moving.artifacts if artifact.backend == 'torchscript')))
    inputs = torch.zeros(1, frames, 3, *size), torch.zeros(1, 3, 128, 160)
    if words is None:
        assert file(*inputs)[0].shape[:2] == (1, 2)
        return
    with pytest.raises(Exception, match=words):
        file(*inputs)


def test_the_rule_of_that_kind_tells_a_wrong_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.additions.plain_trace.backend import PlainTrace
    lower = PlainTrace.lower

    def spoiled(self: PlainTrace, adapter: object, *args: object) -> object:
        raw = type(adapter).raw
        with monkeypatch.context() as changed:
            changed.setattr(type(adapter), 'raw', lambda self, image: (raw(self, image)[0] * 1.01,))
            return lower(self, adapter, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(PlainTrace, 'lower', spoiled)
    report = export(tmp_path, task='Gram', backends=['plain_trace'])
    assert report.passed is False
    assert 'error 1.0e-02 of scale' in report.reasons[0]


def test_a_format_of_a_project_is_checked_from_its_folder(tmp_path: Path) -> None:
    report = export(tmp_path, backends=[dict(type='PlainTrace', scale=2.0)], outputs='raw')
    assert report.passed, report.reasons
    folder = tmp_path / 'plain_trace'
    assert json.loads((folder / 'manifest.json').read_text())['plain_trace'] == {'scale': 2.0}
    command = [sys.executable, str(HERE.parents[1] / 'tools' / 'verify.py'), str(folder)]
    unknown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert unknown.returncode == 2
    assert "no loader for backend 'plain_trace'" in unknown.stderr
    known = subprocess.run([*command, '--runner', str(HERE / 'plain_trace' / 'runner.py')], capture_output=True, text=True, check=False)
    assert known.returncode == 0, known.stdout + known.stderr


def test_an_op_is_written_in_the_form_that_the_format_takes(tmp_path: Path) -> None:
    """Without the patch the file has the operator, with it the form; for exported programs the first that its probe finds right."""
    expected = dict(onnx=('Relu', 'Mul'), torch_export=('relu_', 'mul'), torchscript=('relu_', 'where'))
    for patches in ([], ['Rectified']):
        report = export(tmp_path, backends=list(expected), outputs='raw', patches=patches)
        assert report.passed, report.reasons
        for artifact in report.artifacts:
            operator, form = expected[artifact.backend]
            names = operators(artifact.file)
            assert (operator in names, form in names) == ((False, True) if patches else (True, False)), names
            assert not {'Abs', 'abs'} & set(names)


def operators(file: Path) -> Counter[str]:
    if file.suffix == '.onnx':
        return Counter(node.op_type for node in onnx.load(str(file)).graph.node)
    if file.suffix == '.pt':
        return Counter(re.findall(r'aten::(\w+)\(', str(torch.jit.load(str(file)).inlined_graph)))
    nodes = torch.export.load(str(file)).graph.nodes
    return Counter(node.target.__name__.split('.')[0] for node in nodes if node.op == 'call_function')


def test_a_kind_that_nobody_has_is_refused() -> None:
    with pytest.raises(ValueError, match="does not know outputs of kind 'colours'"):
        kind_of('colours')
