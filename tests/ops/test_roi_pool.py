"""Test RoIPool's forms against the reference kernel, and in the files of each format."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mmexport.backends.exported.from_trace import traced_graph
from mmexport.backends.onnx.internals.converting import converted
from mmexport.backends.openvino.internals import rewritten_for_openvino
from mmexport.ops.op import with_forms
from mmexport.ops.roi_pool import PoolSettings, roi_pool
from mmexport.ops.roi_pool.reference import roi_pool_forward
from tests.programs import needs_program
from tests.regions import STRIDES, pyramid

OPTIONS = PoolSettings((7, 5), tuple(1 / stride for stride in STRIDES))
NAMES = ['one', 'two', 'three', 'four', 'rois', 'level']
# Other sizes, batches and numbers of regions than those that are traced.
OTHERS = [(160, 128, 2, 5), (256, 320, 2, 70)]


class Pooled(nn.Module):
    def forward(self, one: Tensor, two: Tensor, three: Tensor, four: Tensor, rois: Tensor, level: Tensor) -> tuple[Tensor, ...]:
        return (roi_pool([one, two, three, four], rois, level, OPTIONS),)


def example(seed: int = 0, height: int = 192, width: int = 256, images: int = 2, regions: int = 30) -> tuple[Tensor, ...]:
    maps, rois, level = pyramid(seed, height, width, images, regions)
    # Regions that are turned inside out, beyond the picture, on one pixel, and on whole cells.
    rois[2, 1:] = torch.tensor([90.0, 90, 60, 120])
    rois[3, 1:] = torch.tensor([-90.0, -90, -60, -10])
    rois[4, 1:] = torch.tensor([64.0, 32, 95, 63])
    return (*maps, rois, level)


def expected(*inputs: Tensor) -> Tensor:
    *maps, rois, level = inputs
    answer = torch.zeros(len(rois), maps[0].shape[1], *OPTIONS.bins)
    for number, feature in enumerate(maps):
        rows = (level == number).nonzero()[:, 0]
        bins = torch.zeros(len(rows), feature.shape[1], *OPTIONS.bins)
        roi_pool_forward(feature, rois[rows], bins, torch.zeros_like(bins, dtype=torch.int), *OPTIONS.bins, OPTIONS.scales[number])
        answer[rows] = bins
    return answer


def program() -> torch.export.ExportedProgram:
    auto = torch.export.Dim.AUTO
    with with_forms(roi_pool='while_loop'):
        return torch.export.export(Pooled(), example(), strict=False, dynamic_shapes=(*[{2: auto, 3: auto}] * 4, {0: auto}, {0: auto}))


@pytest.mark.parametrize('form', ['script', pytest.param('while_loop', marks=needs_program)])
def test_both_forms_equal_the_reference_kernel(form: str) -> None:
    inputs = example(1, 128, 160, 3, 40)
    with with_forms(roi_pool=form):
        answer = roi_pool(inputs[:4], *inputs[4:], OPTIONS)
    assert torch.equal(answer, expected(*inputs))
    # Some bins are empty, and some are not.
    assert 0.01 < float((answer == 0).float().mean()) < 0.9


def test_no_region_and_no_values() -> None:
    *maps, rois, level = example()
    assert roi_pool(maps, rois[:0], level[:0], OPTIONS).shape == (0, 6, 7, 5)
    on_meta = roi_pool([part.to('meta') for part in maps], rois.to('meta'), level.to('meta'), OPTIONS)
    assert on_meta.shape == (30, 6, 7, 5)


def test_a_trace_follows_sizes_and_regions() -> None:
    traced = torch.jit.freeze(torch.jit.trace(Pooled().eval(), example(), check_trace=False))
    for seed, shape in enumerate([(160, 128, 1, 5), (256, 320, 3, 70)]):
        inputs = example(seed, *shape)
        assert torch.equal(traced(*inputs)[0], expected(*inputs))


@needs_program
def test_a_program_follows_sizes_and_regions() -> None:
    module = program().run_decompositions().module()
    for seed, shape in enumerate(OTHERS):
        inputs = example(seed, *shape)
        assert torch.equal(module(*inputs)[0], expected(*inputs))


@needs_program
def test_an_onnx_file_follows_sizes_and_regions() -> None:
    runs(converted(program(), 18, ['bins'], NAMES).SerializeToString())


def test_the_onnx_graph_of_a_trace_follows_sizes_and_regions() -> None:
    axes = {name: {2: f'{name}_h', 3: f'{name}_w'} if number < 4 else {0: 'regions'} for number, name in enumerate(NAMES)}
    runs(traced_graph(Pooled().eval(), example(), ['bins'], axes, 17, {}).SerializeToString())


def runs(file: bytes) -> None:
    onnxruntime = pytest.importorskip('onnxruntime', reason='ONNX Runtime is not installed')
    session = onnxruntime.InferenceSession(file, providers=['CPUExecutionProvider'])
    for seed, shape in enumerate(OTHERS):
        inputs = example(seed, *shape)
        answer = session.run(None, {name: tensor.numpy() for name, tensor in zip(NAMES, inputs, strict=True)})[0]
        assert torch.equal(torch.from_numpy(answer), expected(*inputs))


@needs_program
def test_an_openvino_model_follows_sizes_and_regions(tmp_path: Path) -> None:
    openvino = pytest.importorskip('openvino', reason='openvino is not installed')
    (tmp_path / 'pool.onnx').write_bytes(converted(program(), 18, ['bins'], NAMES).SerializeToString())
    for source in (rewritten_for_openvino(program()), tmp_path / 'pool.onnx'):
        run = openvino.compile_model(openvino.convert_model(source), 'CPU', {'INFERENCE_PRECISION_HINT': 'f32'})
        for seed, shape in enumerate(OTHERS):
            inputs = example(seed, *shape)
            assert torch.equal(torch.from_numpy(run([tensor.numpy() for tensor in inputs])[0]), expected(*inputs))
