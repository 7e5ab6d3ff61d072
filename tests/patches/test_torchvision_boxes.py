"""Test torchvision's suppression and RoIAlign: the real ones where they are installed, and what replaces them everywhere."""
from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from mmexport.patches import torchvision_boxes
from torch import Tensor, nn

from mmexport.backends.exported.program import unavailable
from mmexport.ops.nms import reference as of_nms
from mmexport.ops.op import with_forms
from mmexport.ops.roi_align import reference as of_roi_align
from mmexport.patching import patched

THRESHOLD = 0.5


class Suppress(nn.Module):
    def forward(self, boxes: Tensor, scores: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        return torchvision_boxes._batched(boxes, scores, classes, THRESHOLD), torchvision_boxes._suppressed(boxes, scores, THRESHOLD)


def boxes_of(count: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return boxes of which many overlap, and some have equal scores."""
    generator = torch.Generator().manual_seed(seed)
    corners, sides = (torch.rand(count, 2, generator=generator) for _ in range(2))
    boxes = torch.cat([40 * corners, 40 * corners + 1 + 30 * sides], dim=1)
    return boxes, (200 * torch.rand(count, generator=generator)).round() / 200, torch.randint(0, 3, (count,), generator=generator)


def expected(boxes: Tensor, scores: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Suppress by the kernel that was written from the definition, of each class alone and of all."""
    order = scores.argsort(descending=True, stable=True)

    def of(rows: Tensor) -> Tensor:
        return rows[of_nms.nms(boxes[rows], scores[rows], THRESHOLD, 0)]
    alone = torch.cat([of(order[classes[order] == label]) for label in range(3)])
    return alone[scores[alone].argsort(descending=True, stable=True)], of(order)


def exported(count: int) -> torch.export.ExportedProgram:
    if reason := unavailable():
        pytest.skip(reason)
    open_size = {0: torch.export.Dim('boxes', max=5000)}
    with with_forms(nms='while_loop'):
        return torch.export.export(Suppress(), boxes_of(count), dynamic_shapes=(open_size,) * 3, strict=False)


def traced(folder: Path) -> Callable[..., Any]:
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(Suppress(), boxes_of(50), check_trace=False), file)
    file.seek(0)
    return torch.jit.load(file)  # type: ignore[no-any-return]


def onnx(folder: Path) -> Callable[..., Any]:
    onnxruntime = pytest.importorskip('onnxruntime', reason='ONNX Runtime is not installed')
    with with_forms(ranking='plain'):
        program = exported(50).run_decompositions()
        torch.onnx.export(program, f=str(folder / 'nms.onnx'), dynamo=True, opset_version=18, verbose=False)
    session = onnxruntime.InferenceSession(str(folder / 'nms.onnx'), providers=['CPUExecutionProvider'])
    names = [each.name for each in session.get_inputs()]
    return lambda *inputs: [torch.from_numpy(each) for each in session.run(None, {
        name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)})]


# On torch 2.10 the exporter does not take the loop as it is; mmexport's ONNX format rewrites it.
@pytest.mark.parametrize('lower', [traced, lambda folder: exported(50).module(), pytest.param(onnx, marks=pytest.mark.slow)],
                         ids=['torchscript', 'torch_export', 'onnx'])
def test_files_suppress_any_number_of_boxes(lower: Callable[..., Any], tmp_path: Path) -> None:
    run = lower(tmp_path)
    for count in (1, 7, 300):
        inputs = boxes_of(count, seed=count)
        kept = run(*inputs)
        # Of equal scores in two classes either may come first.
        assert sorted(kept[0].tolist()) == sorted(expected(*inputs)[0].tolist())
        assert kept[1].tolist() == expected(*inputs)[1].tolist()


@pytest.mark.parametrize(('ratio', 'aligned'), [(-1, False), (2, True), (0, True)])
def test_roi_align_equals_the_kernel(ratio: int, aligned: bool) -> None:
    feature, boxes = torch.rand(2, 4, 20, 24), boxes_of(9)[0]
    rois = torch.cat([torch.tensor([0.0] * 5 + [1.0] * 4)[:, None], boxes], dim=1)
    actual = torchvision_boxes._aligned(feature, [boxes[:5], boxes[5:]], (5, 7), 0.25, ratio, aligned)
    output = torch.zeros_like(actual)
    of_roi_align.roi_align_forward(feature, rois, output, output, output, aligned_height=5, aligned_width=7, spatial_scale=0.25,
                                   sampling_ratio=max(ratio, 0), pool_mode=1, aligned=aligned)
    torch.testing.assert_close(actual, output, rtol=1e-5, atol=1e-5)
    assert torch.equal(actual, torchvision_boxes._aligned(feature, rois, (5, 7), 0.25, ratio, aligned))


def test_torchvision_itself_is_replaced() -> None:
    ops: Any = pytest.importorskip('torchvision.ops', reason='torchvision is not installed', exc_type=ImportError)
    boxes, scores, classes = boxes_of(200, seed=1)
    scores = torch.rand(200, generator=torch.Generator().manual_seed(2))
    feature = torch.rand(2, 4, 20, 24)

    def run() -> tuple[Tensor, ...]:
        of_pictures = [boxes[:5], boxes[5:9]]
        return (ops.nms(boxes, scores, THRESHOLD), ops.batched_nms(boxes, scores, classes, THRESHOLD),
                ops.roi_align(feature, of_pictures, 5, 0.25), ops.RoIAlign((5, 7), 0.25, 2, True)(feature, of_pictures))
    originals = run()
    with patched(['TorchvisionNMS', 'TorchvisionRoIAlign']) as rows:
        assert all(row.skipped is None for row in rows)
        replaced = run()
        torch.jit.trace(lambda one, other: ops.nms(one, other, THRESHOLD), (boxes, scores), check_trace=False)
    for one, other in zip(originals, replaced, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
