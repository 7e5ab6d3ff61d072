"""Compare the forms of suppression with the reference kernel, which walks the boxes one after another, and as files in each runtime."""
from __future__ import annotations

import inspect
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mmexport.backends.exported.program import unavailable
from mmexport.compat.mmcv_ext import reference_kernels
from mmexport.ops.nms import first_kept
from mmexport.ops.op import with_forms

from ..kernel_cases import boxes

pytestmark = pytest.mark.slow

KINDS = ('random', 'clustered', 'chained', 'degenerate', 'huge')
THRESHOLD = 0.45
FORMS = ('script',) if unavailable() else ('script', 'while_loop')


SIZE = 24


def kept(where: Tensor, candidates: Tensor, threshold: float = THRESHOLD, limit: int = SIZE) -> Tensor:
    """Return the places of the boxes that stay, and behind them their number (N, limit + 1)."""
    index, num = first_kept(where, candidates, threshold, limit)
    return torch.cat([index * (torch.arange(limit) < num[:, None]), num[:, None]], dim=1)


class Suppress(nn.Module):
    def forward(self, where: Tensor, candidates: Tensor) -> Tensor:
        return kept(where, candidates)


def pictures(count: int, size: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return sorted boxes (count, size, 4) of all kinds, some of them equal, and candidates."""
    where = torch.stack([boxes(KINDS[number % len(KINDS)], size, seed + number) for number in range(count)])
    # Equal boxes, of which the first must stay; their scores are tied.
    where[::3, size // 2] = where[::3, size // 3]
    draw = np.random.RandomState(seed)
    return where, torch.from_numpy(draw.rand(count, size) < draw.choice([0.0, 0.5, 1.0], (count, 1), p=[0.02, 0.38, 0.6]))


def expected(where: Tensor, candidates: Tensor) -> Tensor:
    result = torch.zeros(len(where), SIZE + 1, dtype=torch.int64)
    for picture, (each, some) in enumerate(zip(where, candidates, strict=True)):
        index = some.nonzero()[:, 0]
        stays = index[reference_kernels()['nms'](each[index], torch.linspace(1, 0, len(index)), THRESHOLD, 0)]
        result[picture, :len(stays)], result[picture, -1] = stays, len(stays)
    return result


def in_parts(run: Callable[..., Tensor], inputs: tuple[Tensor, Tensor]) -> Tensor:
    """Run some pictures at a time: each has a block of 128 places in the file, so that thousands at once would take gigabytes."""
    return torch.cat([run(*part) for part in zip(*(each.split(100) for each in inputs), strict=True)])


@pytest.fixture(scope='module')
def checked() -> tuple[tuple[Tensor, Tensor], Tensor]:
    inputs = pictures(2000, SIZE)
    result = expected(*inputs)
    # Some stay and some go, or nothing would be compared.
    assert 0.2 < float(result[:, -1].sum() / inputs[1].sum()) < 0.9
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
            assert torch.equal(in_parts(kept, inputs), result), form


def test_a_torchscript_file_equals_the_kernel(checked: tuple[tuple[Tensor, Tensor], Tensor]) -> None:
    inputs, result = checked
    assert torch.equal(in_parts(scripted(), inputs), result)


def test_an_exported_program_equals_the_kernel(checked: tuple[tuple[Tensor, Tensor], Tensor]) -> None:
    inputs, result = checked
    assert torch.equal(in_parts(exported(), inputs), result)


@pytest.mark.parametrize('dynamo', [True, False])
def test_an_onnx_file_equals_the_kernel(dynamo: bool, tmp_path: Path, checked: tuple[tuple[Tensor, Tensor], Tensor]) -> None:
    inputs, result = checked
    assert torch.equal(in_parts(onnx(dynamo, tmp_path), inputs), result)


def test_an_openvino_model_equals_the_kernel(tmp_path: Path, checked: tuple[tuple[Tensor, Tensor], Tensor]) -> None:
    """From the ONNX file, and from the program."""
    openvino = pytest.importorskip('openvino', reason='OpenVINO is not installed')
    torch.onnx.export(program(), f=str(tmp_path / 'nms.onnx'), dynamo=True, opset_version=18, verbose=False)
    inputs, result = checked
    for source in (tmp_path / 'nms.onnx', program()):
        model = openvino.Core().compile_model(openvino.convert_model(source), 'CPU', {'INFERENCE_PRECISION_HINT': 'f32'})

        def run(*part: Tensor, model: Any = model) -> Tensor:
            return torch.from_numpy(model([each.numpy() for each in part])[0]).long()
        assert torch.equal(in_parts(run, inputs), result)


def test_an_aotinductor_package_equals_the_kernel(tmp_path: Path, checked: tuple[tuple[Tensor, Tensor], Tensor]) -> None:
    package = torch._inductor.aoti_compile_and_package(program(), package_path=str(tmp_path / 'nms.pt2'))
    inputs, result = checked
    assert torch.equal(in_parts(torch._inductor.aoti_load_package(package), inputs), result)


def test_many_pictures(tmp_path: Path) -> None:
    """As many as NMS_PICTURES says; the issue of detectors asks for 10,000."""
    inputs = pictures(int(os.environ.get('NMS_PICTURES', '1000')), SIZE, seed=5000)
    result = expected(*inputs)
    for name, run in (('torchscript', scripted()), ('torch.export', exported()), ('onnx', onnx(True, tmp_path))):
        assert torch.equal(in_parts(run, inputs), result), name


@pytest.mark.parametrize(('count', 'size'), [(1, 0), (0, 5), (2, 1)])
def test_few_or_no_boxes(count: int, size: int) -> None:
    for form in FORMS:
        with with_forms(nms=form):
            found = kept(torch.zeros(count, size, 4), torch.ones(count, size, dtype=torch.bool))
            assert found.shape == (count, SIZE + 1) and bool((found[:, -1] == min(size, 1) * size).all())
