"""Check what the runners hand to their runtimes, on files made here."""
from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor, nn

from mmexport.backends.aotinductor import runner as aotinductor
from mmexport.backends.onnx import runner as onnx_runner
from mmexport.backends.openvino import runner as openvino
from mmexport.backends.tensorrt import runner as tensorrt
from mmexport.backends.torch_export import runner as torch_export
from mmexport.backends.torchscript import runner as torchscript

CPU = torch.device('cpu')
IMAGE = torch.rand(2, 3, 4, 6)


class Double(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(2.0))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        return image * self.factor, image.flip(-1)


@pytest.fixture
def onnx_file(tmp_path: Path) -> Path:
    """Write a graph that doubles its image, and transposes it."""
    axes = ['n', 3, 'h', 'w']
    image, double = (helper.make_tensor_value_info(name, TensorProto.FLOAT, axes) for name in ('image', 'double'))
    turned = helper.make_tensor_value_info('turned', TensorProto.FLOAT, ['n', 'h', 'w', 3])
    nodes = [helper.make_node('Add', ['image', 'image'], ['double'], name='add'),
             helper.make_node('Transpose', ['image'], ['turned'], name='turn', perm=[0, 2, 3, 1])]
    graph = helper.make_graph(nodes, 'graph', [image], [double, turned])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 18)], ir_version=9), tmp_path / 'model.onnx')
    return tmp_path / 'model.onnx'


def test_onnx_session_runs_with_names_and_providers(onnx_file: Path) -> None:
    runner = onnx_runner.load(onnx_file, CPU)
    double, turned = runner(IMAGE)
    assert torch.equal(double, IMAGE * 2)
    assert torch.equal(turned, IMAGE.permute(0, 2, 3, 1))
    assert onnx_runner.names(runner) == {'inputs': [{'image'}], 'outputs': [{'double'}, {'turned'}]}
    assert onnx_runner.facts(runner) == {'providers': {'CPUExecutionProvider': 2}}


class Recorded:
    """Stand for onnxruntime.InferenceSession on a machine with a GPU."""

    made: list[Any] = []
    has = ['CUDAExecutionProvider', 'CPUExecutionProvider']
    record: list[Any] | None = []

    def __init__(self, file: str, options: Any, providers: list[Any]) -> None:
        self.made.append((file, options, providers))
        if self.record is None:
            self.get_provider_graph_assignment_info = None
        else:
            self.get_provider_graph_assignment_info = lambda: self.record

    def get_providers(self) -> list[str]:
        return self.has


def part(provider: str, *nodes: tuple[str, str]) -> Any:
    return SimpleNamespace(ep_name=provider, get_nodes=lambda: [SimpleNamespace(name=name, op_type=kind) for name, kind in nodes])


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> type[Recorded]:
    import onnxruntime
    monkeypatch.setattr(onnxruntime, 'InferenceSession', Recorded)
    monkeypatch.setattr(Recorded, 'made', [])
    return Recorded


def test_onnx_session_options_per_device(onnx_file: Path, recorded: type[Recorded]) -> None:
    for device, number in (('cuda', '0'), ('cuda:1', '1')):
        onnx_runner.load(onnx_file, torch.device(device))
        file, options, providers = recorded.made[-1]
        assert file == str(onnx_file)
        assert providers == [('CUDAExecutionProvider', {'device_id': number, 'use_tf32': '0'}), 'CPUExecutionProvider']
    onnx_runner.load(onnx_file, CPU)
    _, options, providers = recorded.made[-1]
    assert providers == ['CPUExecutionProvider']
    assert options.intra_op_num_threads == torch.get_num_threads()
    assert options.log_severity_level == 3
    assert options.get_session_config_entry('session.record_ep_graph_assignment_info') == '1'


@pytest.mark.parametrize(('precision', 'extended'), [('float16', True), ('float32', False), (None, False)])
def test_onnx_float16_uses_extended_optimization(precision: str | None, extended: bool, onnx_file: Path,
                                                 recorded: type[Recorded]) -> None:
    import onnxruntime
    if precision:
        onnx_file.with_name('manifest.json').write_text(json.dumps(dict(precision=precision)))
    onnx_runner.load(onnx_file, CPU)
    levels = onnxruntime.GraphOptimizationLevel
    assert recorded.made[-1][1].graph_optimization_level == (levels.ORT_ENABLE_EXTENDED if extended else levels.ORT_ENABLE_ALL)
    onnx_file.with_name('manifest.json').write_text('{}')
    assert not onnx_runner.in_half(onnx_file)


def test_onnx_cpu_fallback_on_cuda_raises(onnx_file: Path, recorded: type[Recorded],
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, on_gpu, on_cpu = torch.device('cuda'), 'CUDAExecutionProvider', 'CPUExecutionProvider'
    monkeypatch.setattr(recorded, 'record', [part(on_gpu, ('add', 'Add')), part(on_cpu, ('size', 'Shape'))])
    runner = onnx_runner.load(onnx_file, cuda)
    assert onnx_runner.facts(runner) == {'providers': {'CUDAExecutionProvider': 1, 'CPUExecutionProvider': 1}}
    monkeypatch.setattr(recorded, 'record', [part(on_cpu, ('grid', 'GridSample'), ('turn', 'Transpose'), ('size', 'Shape'))])
    with pytest.raises(RuntimeError, match=r'^asked for on CUDA, these run on the CPU: GridSample, Transpose; another opset may have CUDA '
                                           r'kernels for them \(GridSample: 16 to 19\)$'):
        onnx_runner.load(onnx_file, cuda)
    onnx_runner.load(onnx_file, CPU)
    many = [(f'n{number}', f'Kind{number}') for number in range(10)]
    monkeypatch.setattr(recorded, 'record', [part(on_cpu, *many)])
    with pytest.raises(RuntimeError, match='CPU: Kind0, Kind1, Kind2, Kind3, Kind4, Kind5, Kind6, Kind7; '):
        onnx_runner.load(onnx_file, cuda)
    monkeypatch.setattr(recorded, 'record', None)
    with pytest.raises(RuntimeError, match='^this ONNX Runtime keeps no record of which operator runs where; install a newer'):
        onnx_runner.load(onnx_file, cuda)
    assert onnx_runner.facts(onnx_runner.load(onnx_file, CPU)) == {'providers': {}}
    monkeypatch.setattr(recorded, 'has', ['AzureExecutionProvider', 'CPUExecutionProvider'])
    with pytest.raises(RuntimeError, match=r'^ONNX Runtime did not take CUDAExecutionProvider \(it has AzureExecutionProvider, '
                                           r'CPUExecutionProvider\): install onnxruntime-gpu for this CUDA; it would have run on the CPU'):
        onnx_runner.load(onnx_file, cuda)


def test_strays_without_onnx_package(onnx_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert onnx_runner.tensor_nodes(onnx_file) == {'add', 'turn'}
    monkeypatch.setitem(sys.modules, 'onnx', None)
    assert onnx_runner.tensor_nodes(onnx_file) == set()
    assert onnx_runner.unexpected_cpu_operators([('turn', 'Transpose'), ('grid', 'GridSample')], onnx_file) == ['GridSample']


def test_openvino_precision_hint(onnx_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import openvino as runtime
    requested: list[tuple[str, dict[str, Any]]] = []
    compile_model = runtime.Core.compile_model

    def noted(core: Any, model: Any, device: str, config: dict[str, Any]) -> Any:
        requested.append((device, config))
        return compile_model(core, model, device, config)

    monkeypatch.setattr(runtime.Core, 'compile_model', noted)
    runner = openvino.load(onnx_file, CPU)
    double, turned = runner(IMAGE)
    assert torch.equal(double, IMAGE * 2)
    kept = double.clone()
    runner(IMAGE + 1)
    assert torch.equal(double, kept)
    assert torch.equal(turned, IMAGE.permute(0, 2, 3, 1))
    assert openvino.names(runner) == {'inputs': [{'image'}], 'outputs': [{'double'}, {'turned'}]}
    model = runtime.Core().read_model(str(onnx_file))
    model.set_rt_info('bf16', ['mmexport', 'precision'])
    runtime.save_model(model, str(onnx_file.with_name('model.xml')))
    openvino.load(onnx_file.with_name('model.xml'), CPU)
    threads = torch.get_num_threads()
    assert requested == [('CPU', {'INFERENCE_PRECISION_HINT': hint, 'INFERENCE_NUM_THREADS': threads}) for hint in ('f32', 'bf16')]
    with pytest.raises(ValueError, match='^OpenVINO runs on the CPU here, not on cuda:1$'):
        openvino.load(onnx_file, torch.device('cuda:1'))


def test_torchscript_load_is_silent(tmp_path: Path, recwarn: pytest.WarningsRecorder,
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    torch.jit.script(Double()).save(str(tmp_path / 'model.pt'))
    read = torch.jit.load
    requested: list[Any] = []

    def noted(file: str, map_location: Any) -> Any:
        requested.append((file, map_location))
        import warnings
        warnings.warn('old', stacklevel=1)
        return read(file, map_location)

    monkeypatch.setattr(torch.jit, 'load', noted)
    recwarn.clear()
    double, turned = torchscript.load(tmp_path / 'model.pt', CPU)(IMAGE)
    assert torch.equal(double, IMAGE * 2) and torch.equal(turned, IMAGE.flip(-1))
    assert requested == [(str(tmp_path / 'model.pt'), CPU)]
    assert not recwarn.list


def test_torch_export_load_moves_to_device(tmp_path: Path) -> None:
    program = torch.export.export(Double(), (IMAGE,))
    torch.export.save(program, tmp_path / 'model.pt2')
    double, turned = torch_export.load(tmp_path / 'model.pt2', CPU)(IMAGE)
    assert torch.equal(double, IMAGE * 2) and torch.equal(turned, IMAGE.flip(-1))
    moved = torch_export.load(tmp_path / 'model.pt2', torch.device('meta'))
    assert {str(tensor.device) for tensor in moved.state_dict().values()} == {'meta'}


@pytest.mark.parametrize(('device', 'index'), [('cpu', -1), ('cuda', -1), ('cuda:1', 1)])
def test_aotinductor_device_must_match(device: str, index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor
    requested: list[tuple[str, int]] = []

    class Package:
        made_for: dict[str, str] = {'AOTI_DEVICE_KEY': torch.device(device).type}

        def get_metadata(self) -> dict[str, str]:
            return self.made_for

        def __call__(self, image: Tensor) -> bool:
            return image.is_contiguous()

    def load(file: str, device_index: int) -> Package:
        requested.append((file, device_index))
        return Package()

    monkeypatch.setattr(torch._inductor, 'aoti_load_package', load)
    runner: Callable[..., Any] = aotinductor.load(Path('model.pt2'), torch.device(device))
    assert runner(IMAGE.transpose(2, 3)) is True
    assert requested == [('model.pt2', index)]
    Package.made_for = {}
    aotinductor.load(Path('model.pt2'), torch.device(device))
    Package.made_for = {'AOTI_DEVICE_KEY': 'xpu'}
    kind = torch.device(device).type
    with pytest.raises(ValueError, match=f'^this package was compiled for xpu and runs only there; compile it on a machine with {kind}$'):
        aotinductor.load(Path('model.pt2'), torch.device(device))


def test_tensorrt_needs_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match='^TensorRT engines run on the GPU that they were compiled for; verify with --device cuda$'):
        tensorrt.load(Path('model.ep'), CPU)
    loaded: list[str] = []

    def load(file: str) -> Any:
        loaded.append(file)
        return SimpleNamespace(module=lambda: np.square)

    monkeypatch.setitem(sys.modules, 'torch_tensorrt', SimpleNamespace(load=load))
    assert tensorrt.load(Path('model.ep'), torch.device('cuda')) is np.square
    assert loaded == ['model.ep']
