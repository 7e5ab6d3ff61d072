"""Test that Soft-NMS keeps what the reference kernel keeps, with its scores."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mmexport.ops.nms.reference import softnms
from mmexport.ops.op import with_forms
from mmexport.ops.soft_nms import METHODS, SoftNms, softly_kept

FORMS = ('script', 'while_loop')


def crowd(seed: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw boxes (2, M, 4), their scores, no two alike, and which take part."""
    generator = torch.Generator().manual_seed(seed)
    corner, sides = (torch.rand(2, count, 2, generator=generator) * size for size in (60.0, 40.0))
    scores = (torch.stack([torch.randperm(count, generator=generator) for _ in range(2)]) + 1) / (count + 1)
    return torch.cat([corner, corner + sides + 1], dim=2), scores, torch.rand(2, count, generator=generator) < 0.9


def expected(boxes: Tensor, scores: Tensor, taking: Tensor, settings: SoftNms) -> tuple[Tensor, Tensor]:
    places, dets = taking.nonzero()[:, 0], torch.zeros(int(taking.sum()), 5)
    kept = softnms(boxes[places], scores[places], dets, settings.iou_threshold, settings.sigma, settings.min_score, settings.method,
                   settings.offset)
    return places[kept], dets[:len(kept), 4]


@pytest.mark.parametrize('form', FORMS)
@pytest.mark.parametrize('method', range(len(METHODS)))
@pytest.mark.parametrize(('count', 'limit'), [(1, 3), (5, 100), (90, 10), (300, 400)])
def test_boxes_and_scores_are_those_of_the_reference_kernel(count: int, limit: int, method: int, form: str) -> None:
    for seed in range(3):
        boxes, scores, taking = crowd(seed, count)
        settings = SoftNms([0.5, 0.3, 0.65][seed], [0.5, 0.2, 1.0][seed], [1e-3, 0.05, 0.2][seed], method, seed % 2)
        with with_forms(soft_nms=form):
            index, values, found = softly_kept(boxes, scores, taking, settings, limit)
        for image in range(2):
            rows, lowered = expected(boxes[image], scores[image], taking[image], settings)
            assert int(found[image]) == min(len(rows), limit)
            assert torch.equal(index[image, :len(rows)], rows[:limit])
            assert torch.allclose(values[image, :len(rows)], lowered[:limit], rtol=1e-5)
            assert not values[image, len(rows):].any()


@pytest.mark.parametrize('form', FORMS)
def test_the_first_box_stays_whatever_its_score_and_none_where_there_is_none(form: str) -> None:
    boxes, scores, taking = crowd(0, 20)
    taking[1] = False
    with with_forms(soft_nms=form):
        index, values, found = softly_kept(boxes, scores * 1e-4, taking, SoftNms(), 10)
        none = softly_kept(boxes[:, :0], scores[:, :0], taking[:, :0], SoftNms(), 10)
    assert found.tolist() == [1, 0] and float(values[0, 0]) == pytest.approx(float((scores * 1e-4)[0, index[0, 0]]))
    assert none[2].tolist() == [0, 0]


def test_of_equal_scores_the_first_comes_first() -> None:
    boxes = torch.tensor([[[0.0, 0, 10, 10], [1, 0, 11, 10], [50, 50, 60, 60]]])
    index, values, found = softly_kept(boxes, torch.full((1, 3), 0.5), torch.ones(1, 3, dtype=torch.bool), SoftNms(), 3)
    assert index.tolist() == [[0, 2, 1]] and int(found) == 3 and float(values[0, 2]) < 0.2


class Suppressed(nn.Module):
    def forward(self, boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return softly_kept(boxes, scores, scores > 0.1, SoftNms(), 20)


def test_a_trace_keeps_the_loop_for_other_boxes() -> None:
    boxes, scores, _ = crowd(0, 40)
    traced = torch.jit.trace(Suppressed(), (boxes, scores), check_trace=False)
    other, others, _ = crowd(1, 300)
    for result, again in zip(traced(other, others), Suppressed()(other, others), strict=True):
        assert torch.equal(result, again)


def test_onnx_keeps_the_loop_for_other_boxes(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip('onnxruntime')
    boxes, scores, _ = crowd(0, 40)
    count = torch.export.Dim('count', min=2)
    with with_forms(soft_nms='while_loop'):
        torch.onnx.export(Suppressed(), (boxes, scores), tmp_path / 'model.onnx', dynamo=True, input_names=['boxes', 'scores'],
                          dynamic_shapes=({1: count}, {1: count}), verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / 'model.onnx', providers=['CPUExecutionProvider'])
    other, others, _ = crowd(1, 300)
    results = session.run(None, {'boxes': other.numpy(), 'scores': others.numpy()})
    for result, again in zip(results, Suppressed()(other, others), strict=True):
        assert torch.allclose(torch.from_numpy(result), again, rtol=1e-5)


def test_without_values_it_has_the_same_shapes() -> None:
    boxes, scores, taking = (part.to('meta') for part in crowd(0, 40))
    index, values, found = softly_kept(boxes, scores, taking, SoftNms(), 20)
    assert index.shape == values.shape == (2, 20) and found.shape == (2,)
