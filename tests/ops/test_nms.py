"""Compare the forms of suppression with the reference kernel, which walks the boxes one after another, and as files in each runtime."""
from __future__ import annotations

import inspect
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mmexport.backends.exported.program import unavailable
from mmexport.compat.mmcv_ext import reference_kernels
from mmexport.ops.nms import suppress
from mmexport.ops.op import with_forms

from ..kernel_cases import boxes

KINDS = ('random', 'clustered', 'chained', 'degenerate', 'huge')
THRESHOLD = 0.45
FORMS = ('script',) if unavailable() else ('script', 'while_loop')


class Suppress(nn.Module):
    def forward(self, where: Tensor, candidates: Tensor) -> Tensor:
        return suppress(where, candidates, THRESHOLD)


def pictures(count: int, size: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return sorted boxes (count, size, 4) of all kinds, some of them equal, and candidates."""
    where = torch.stack([boxes(KINDS[number % len(KINDS)], size, seed + number) for number in range(count)])
    # Equal boxes, of which the first must stay; their scores are tied.
    where[::3, size // 2] = where[::3, size // 3]
    draw = np.random.RandomState(seed)
    return where, torch.from_numpy(draw.rand(count, size) < draw.choice([0.0, 0.5, 1.0], (count, 1), p=[0.02, 0.38, 0.6]))


def expected(where: Tensor, candidates: Tensor) -> Tensor:
    result = torch.zeros_like(candidates)
    for picture, (each, some) in enumerate(zip(where, candidates, strict=True)):
        index = some.nonzero()[:, 0]
        scores = torch.linspace(1, 0, len(index))
        result[picture, index[reference_kernels()['nms'](each[index], scores, THRESHOLD, 0)]] = True
    return result


@pytest.fixture(scope='module')
def checked() -> tuple[tuple[Tensor, Tensor], Tensor]:
    inputs = pictures(2000, 24)
    result = expected(*inputs)
    # Some stay and some go, or nothing would be compared.
    assert 0.2 < float(result.sum() / inputs[1].sum()) < 0.9
    return inputs, result


def scripted() -> Callable[..., Tensor]:
    traced = torch.jit.trace(Suppress().eval(), pictures(1, 9), check_trace=False)
    file = io.BytesIO()
    torch.jit.save(torch.jit.freeze(traced), file)
    file.seek(0)
    return torch.jit.load(file)  # type: ignore[no-any-return]


def program() -> torch.export.ExportedProgram:
    if reason := unavailable():
        pytest.skip(reason)
    axes = {0: torch.export.Dim('batch', max=1 << 16), 1: torch.export.Dim('boxes', max=4096)}
    with with_forms(nms='while_loop'):
        return torch.export.export(Suppress().eval(), pictures(3, 9), dynamic_shapes=(axes, dict(axes)), strict=False).run_decompositions()


def exported() -> Callable[..., Tensor]:
    file = io.BytesIO()
    torch.export.save(program(), file)
    file.seek(0)
    return torch.export.load(file).module()


def onnx(dynamo: bool, folder: Path) -> Callable[..., Tensor]:
    onnxruntime = pytest.importorskip('onnxruntime', reason='ONNX Runtime is not installed')
    file = folder / 'nms.onnx'
    if dynamo:
        torch.onnx.export(program(), f=str(file), dynamo=True, opset_version=18, verbose=False)
    else:
        options = dict(dynamo=False) if 'dynamo' in inspect.signature(torch.onnx.export).parameters else {}
        torch.onnx.export(Suppress().eval(), pictures(3, 9), str(file), opset_version=18, input_names=['where', 'candidates'],
                          dynamic_axes={name: {0: 'batch', 1: 'boxes'} for name in ('where', 'candidates')}, **options)
    session = onnxruntime.InferenceSession(str(file), providers=['CPUExecutionProvider'])
    names = [each.name for each in session.get_inputs()]
    return lambda *inputs: torch.from_numpy(session.run(None, {name: each.numpy() for name, each in zip(names, inputs, strict=True)})[0])


def test_both_forms_are_greedy_and_stable(checked: tuple[tuple[Tensor, Tensor], Tensor]) -> None:
    inputs, result = checked
    for form in FORMS:
        with with_forms(nms=form):
            assert torch.equal(suppress(*inputs, THRESHOLD), result), form


def test_a_torchscript_file_equals_the_kernel(checked: tuple[tuple[Tensor, Tensor], Tensor]) -> None:
    inputs, result = checked
    assert torch.equal(scripted()(*inputs), result)


def test_an_exported_program_equals_the_kernel(checked: tuple[tuple[Tensor, Tensor], Tensor]) -> None:
    inputs, result = checked
    assert torch.equal(exported()(*inputs), result)


@pytest.mark.parametrize('dynamo', [True, False])
def test_an_onnx_file_equals_the_kernel(dynamo: bool, tmp_path: Path, checked: tuple[tuple[Tensor, Tensor], Tensor]) -> None:
    inputs, result = checked
    assert torch.equal(onnx(dynamo, tmp_path)(*inputs), result)


def test_an_openvino_model_equals_the_kernel(tmp_path: Path, checked: tuple[tuple[Tensor, Tensor], Tensor]) -> None:
    """From the ONNX file: OpenVINO's own conversion does not take torch's while_loop with tensors from outside of it."""
    openvino = pytest.importorskip('openvino', reason='OpenVINO is not installed')
    torch.onnx.export(program(), f=str(tmp_path / 'nms.onnx'), dynamo=True, opset_version=18, verbose=False)
    model = openvino.Core().compile_model(openvino.convert_model(tmp_path / 'nms.onnx'), 'CPU', {'INFERENCE_PRECISION_HINT': 'f32'})
    inputs, result = checked
    assert torch.equal(torch.from_numpy(model([each.numpy() for each in inputs])[0]).bool(), result)


@pytest.mark.slow
def test_an_aotinductor_package_equals_the_kernel(tmp_path: Path, checked: tuple[tuple[Tensor, Tensor], Tensor]) -> None:
    package = torch._inductor.aoti_compile_and_package(program(), package_path=str(tmp_path / 'nms.pt2'))
    inputs, result = checked
    assert torch.equal(torch._inductor.aoti_load_package(package)(*inputs), result)


@pytest.mark.slow
def test_ten_thousand_pictures(tmp_path: Path) -> None:
    inputs = pictures(10_000, 24, seed=5000)
    result = expected(*inputs)
    for name, run in (('torchscript', scripted()), ('torch.export', exported()), ('onnx', onnx(True, tmp_path))):
        assert torch.equal(run(*inputs), result), name


def test_a_long_chain_alternates() -> None:
    """Each box overlaps its neighbours only: every second one stays, at the far end too."""
    start = torch.arange(600.0) * 5
    where = torch.stack([start, start * 0, start + 10, start * 0 + 10], 1)[None]
    stays = suppress(where, torch.ones(1, 600, dtype=torch.bool), 0.3)
    assert stays[0, ::2].all()
    assert not stays[0, 1::2].any()


@pytest.mark.parametrize(('count', 'size'), [(1, 0), (0, 5), (2, 1)])
def test_few_or_no_boxes(count: int, size: int) -> None:
    for form in FORMS:
        with with_forms(nms=form):
            assert suppress(torch.zeros(count, size, 4), torch.ones(count, size, dtype=torch.bool), THRESHOLD).all()
