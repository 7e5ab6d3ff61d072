"""Test RoIAlign's forms against recorded compiled mmcv and the reference kernel, and in the files of each format."""
from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from mmexport.backends.exported.from_trace import traced_graph
from mmexport.backends.onnx.internals.converting import converted
from mmexport.backends.openvino.internals import extensions, rewritten_for_openvino
from mmexport.ops.op import form_of, with_forms
from mmexport.ops.roi_align import Settings, roi_align
from mmexport.ops.roi_align.reference import roi_align_forward
from tests.kernel_cases import cases
from tests.programs import needs_program
from tests.regions import STRIDES, pyramid

# Of a place in a map, relative: float32 rounds it, and values of noise change by their scale from cell to cell.
ROUNDING = 3e-5


def settings(ratio: int, aligned: bool, bins: tuple[int, int] = (7, 7)) -> Settings:
    return Settings(bins, tuple(1 / stride for stride in STRIDES), ratio, aligned)


def expected(maps: list[Tensor], rois: Tensor, level: Tensor, options: Settings) -> Tensor:
    answer = torch.zeros(len(rois), maps[0].shape[1], *options.bins)
    for number, feature in enumerate(maps):
        rows = (level == number).nonzero()[:, 0]
        bins, none = torch.zeros(len(rows), feature.shape[1], *options.bins), torch.zeros(0)
        roi_align_forward(feature, rois[rows], bins, none, none, *options.bins, options.scales[number], options.sampling_ratio, 1,
                          options.aligned)
        answer[rows] = bins
    return answer


class Pooled(nn.Module):
    """Return the bins of regions; the first map is first, as a trace's sizes come from it."""

    def __init__(self, options: Settings) -> None:
        super().__init__()
        self.options = options

    def forward(self, one: Tensor, two: Tensor, three: Tensor, four: Tensor, rois: Tensor, level: Tensor) -> tuple[Tensor, ...]:
        return (roi_align([one, two, three, four], rois, level, self.options),)


def close(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and float((one - other).abs().max()) <= ROUNDING * float(other.abs().max())


def test_bags_equal_recorded_mmcv() -> None:
    compared = 0
    with np.load(Path(__file__).parents[1] / 'data' / 'kernels.npz') as recorded:
        for case in cases():
            options = case.options
            if case.kernel != 'roi_align_forward' or not options['pool_mode']:
                continue
            feature, rois = case.args[:2]
            bins = (options['aligned_height'], options['aligned_width'])
            answer = roi_align([feature], rois, torch.zeros(len(rois), dtype=torch.int64),
                               Settings(bins, (options['spatial_scale'],), options['sampling_ratio'], options['aligned']))
            result = torch.from_numpy(recorded[f'roi_align_forward/{case.name}/0'])
            assert answer.shape == result.shape
            assert not len(result) or close(answer, result), case.name
            compared += 1
    assert compared == 24


@pytest.mark.parametrize('form', ['bags', 'operator'])
@pytest.mark.parametrize('aligned', [True, False])
@pytest.mark.parametrize('ratio', [0, 1, 2])
def test_several_levels_equal_the_reference_kernel(ratio: int, aligned: bool, form: str) -> None:
    options = settings(ratio, aligned, (7, 5))
    case = pyramid(ratio, 192, 256, 2, 60)
    with with_forms(roi_align=form):
        assert close(roi_align(*case, options), expected(*case, options))


@pytest.mark.parametrize('aligned', [True, False])
def test_a_trace_follows_sizes_and_regions(aligned: bool) -> None:
    maps, rois, level = pyramid(0, 192, 256, 2, 30)
    options = settings(0, aligned)
    traced = torch.jit.freeze(torch.jit.trace(Pooled(options).eval(), (*maps, rois, level), check_trace=False))
    for seed, shape in enumerate([(160, 128, 1, 5), (256, 320, 3, 70)]):
        maps, rois, level = pyramid(seed, *shape)
        assert close(traced(*maps, rois, level)[0], expected(maps, rois, level, options))


def program(options: Settings, form: str) -> torch.export.ExportedProgram:
    maps, rois, level = pyramid(0, 192, 256, 2, 30)
    auto = torch.export.Dim.AUTO
    with with_forms(roi_align=form):
        assert form_of('roi_align') == form
        return torch.export.export(Pooled(options), (*maps, rois, level), strict=False,
                                   dynamic_shapes=(*[{2: auto, 3: auto}] * 4, {0: auto}, {0: auto}))


@needs_program
@pytest.mark.parametrize('aligned', [True, False])
def test_a_program_follows_sizes_and_regions(aligned: bool) -> None:
    options = settings(0, aligned)
    module = program(options, 'bags').run_decompositions().module()
    for seed, shape in enumerate([(160, 128, 2, 5), (256, 320, 2, 70)]):
        maps, rois, level = pyramid(seed, *shape)
        assert close(module(*maps, rois, level)[0], expected(maps, rois, level, options))


@needs_program
@pytest.mark.parametrize('aligned', [True, False])
@pytest.mark.parametrize('ratio', [0, 2])
def test_onnx_has_the_operator(ratio: int, aligned: bool) -> None:
    options = settings(ratio, aligned)
    inputs = ['one', 'two', 'three', 'four', 'rois', 'level']
    proto = converted(program(options, 'operator'), 18, ['bins'], inputs)
    assert sum(node.op_type == 'RoiAlign' for node in proto.graph.node) == 4
    assert {node.domain for node in proto.graph.node} == {''}
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=['CPUExecutionProvider'])
    maps, rois, level = pyramid(1, 256, 320, 2, 70)
    answer = session.run(None, {name: tensor.numpy() for name, tensor in zip(inputs, (*maps, rois, level), strict=True)})
    assert close(torch.from_numpy(answer[0]), expected(maps, rois, level, options))


@pytest.mark.parametrize('aligned', [True, False])
def test_the_onnx_graph_of_a_trace_has_the_operator(aligned: bool) -> None:
    options = settings(0, aligned)
    maps, rois, level = pyramid(0, 192, 256, 2, 30)
    names = ['one', 'two', 'three', 'four', 'rois', 'level']
    axes = {name: {2: f'{name}_h', 3: f'{name}_w'} if number < 4 else {0: 'regions'} for number, name in enumerate(names)}
    proto = traced_graph(Pooled(options).eval(), (*maps, rois, level), ['bins'], axes, 17, dict(roi_align='operator'))
    assert sum(node.op_type == 'RoiAlign' for node in proto.graph.node) == 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=['CPUExecutionProvider'])
    maps, rois, level = pyramid(1, 256, 320, 2, 70)
    answer = session.run(None, {name: tensor.numpy() for name, tensor in zip(names, (*maps, rois, level), strict=True)})
    assert close(torch.from_numpy(answer[0]), expected(maps, rois, level, options))


@needs_program
@pytest.mark.parametrize('aligned', [True, False])
@pytest.mark.parametrize('ratio', [0, 2])
def test_openvino_has_the_operator(ratio: int, aligned: bool) -> None:
    openvino = pytest.importorskip('openvino', reason='openvino is not installed')
    options = settings(ratio, aligned)
    model = openvino.convert_model(rewritten_for_openvino(program(options, 'operator')), extension=extensions())
    assert sum(node.get_type_name() == 'ROIAlign' for node in model.get_ops()) == 4
    run = openvino.compile_model(model, 'CPU', {'INFERENCE_PRECISION_HINT': 'f32'})
    maps, rois, level = pyramid(1, 256, 320, 2, 70)
    answer = run([tensor.numpy() for tensor in (*maps, rois, level)])[0]
    assert close(torch.from_numpy(answer), expected(maps, rois, level, options))
