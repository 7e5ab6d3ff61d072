"""Test that detections of the adapter are those of mmdet's own post-processing, and what rounding may change is known."""
from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmexport.adapters import build_adapter
from mmexport.adapters.detection.boxes.candidates import Candidates, best_pairs
from mmexport.adapters.detection.boxes.suppression import kept
from mmexport.checker.rules.detection_rows import compare_detections
from mmexport.errors import UnsupportedModelError
from mmexport.inputs.synthetic import picture
from mmexport.verification.test_step import run_test_step_on
from tests.detectors import CONFIGS, MULTIPLES, SHAPES, seeded_detector
from tests.tiny import SHAPE

# One worker runs them: they share what is computed once.
pytestmark = pytest.mark.xdist_group('dense')
# The scores of CenterNet's seeded weights differ little between places, and more between classes; proposals have no class.
LEAST_CLASSES = {'centernet': 2, 'rpn': 1}


@torch.no_grad()
def outputs(name: str, size: tuple[int, int] = (128, 160), **cfg: Any) -> tuple[Any, dict[str, Tensor], dict[str, Tensor], Tensor]:
    """Return adapter, detections, evidence and picture of a seeded detector whose test_cfg is changed by `cfg`."""
    model = copy.copy(seeded_detector(name))
    if cfg:
        model._modules = {**model._modules, 'bbox_head': copy.copy(model.bbox_head)}
        model.bbox_head.test_cfg = copy.deepcopy(model.bbox_head.test_cfg)
        model.bbox_head.test_cfg.update(cfg)
    adapter = build_adapter(model)
    image = picture((2, 3, *size), 3, adapter)
    raw, _ = adapter.run_with_evidence(image)
    return adapter, dict(zip([spec.name for spec in adapter.specs], adapter.final(raw, image), strict=True)), \
        adapter.evidence(raw, image, {}), image


@pytest.mark.parametrize('name', [*CONFIGS, 'deformable_detr', 'dino', 'sparse_rcnn', 'queryinst'])
@pytest.mark.parametrize('size', [(128, 160), (97, 161), (224, 64)])
def test_detections_equal_test_step(name: str, size: tuple[int, int]) -> None:
    step = MULTIPLES.get(name, 1)
    size = tuple(-(-side // step) * step for side in size)  # type: ignore[assignment]
    adapter, expected, evidence, image = outputs(name, size)
    assert int(expected['num'].sum()) > 5 and len(expected['labels'].unique()) >= LEAST_CLASSES.get(name, 5)
    with torch.no_grad():
        read = adapter.read(run_test_step_on(adapter, image))
    result = compare_detections(expected, read, evidence, 1e-5)
    assert result.get('problem') is None and result['beyond'] == 0, result


@pytest.mark.parametrize('name', CONFIGS)
def test_pictures_are_crowded(name: str) -> None:
    """Else a wrong decision may not show. The points of FCOS and the boxes of CenterNet's seeded weights lie within the picture."""
    adapter, expected, _, image = outputs(name, SHAPES.get(name, SHAPE)[2:])  # type: ignore[arg-type]
    boxes, height, width = expected['boxes'], *image.shape[2:]
    there = expected['scores'] > 0
    assert int(expected['num'].min()) >= 20
    assert all(len(labels[row].unique()) >= LEAST_CLASSES.get(name, 5) for labels, row in zip(expected['labels'], there, strict=True))
    border = (boxes[..., :2] <= 0).any(dim=2) | (boxes[..., 2] >= width) | (boxes[..., 3] >= height)
    assert int((border & there).sum()) >= 5 or name in ('fcos', 'centernet')
    if name in ('retinanet', 'atss', 'fcos', 'yolox', 'rtmdet', 'rpn'):
        candidates = adapter._candidates(adapter.run_with_evidence(image)[0], adapter.sizes_of(image))
        assert int(candidates.valid.sum()) > 1.2 * int(expected['num'].sum()), 'nothing is suppressed'


CHANGES: dict[str, dict[str, Any]] = {
    'a higher threshold of suppression': dict(nms=dict(type='nms', iou_threshold=0.6)),
    'a higher threshold of the score': dict(score_thr=0.1),
    'a threshold without a type': dict(nms=dict(iou_threshold=0.6)),
    'boxes that touch are suppressed': dict(nms=dict(type='nms', iou_threshold=0.0)),
    'class agnostic': dict(nms=dict(type='nms', iou_threshold=0.5, class_agnostic=True)),
    'class agnostic, of each class where there are many': dict(nms=dict(type='nms', iou_threshold=0.6, class_agnostic=True, split_thr=20)),
    'offset 1': dict(nms=dict(type='nms', iou_threshold=0.5, offset=1)),
    'fewer rows': dict(max_per_img=30),
    'a least size': dict(min_bbox_size=24),
    'the best of each level only': dict(nms_pre=10),
}


@pytest.mark.parametrize('settings', [
    dict(method='linear'), dict(method='gaussian'), dict(method='naive'), dict(method='linear', split_thr=20),
    dict(method='linear', class_agnostic=True), dict(method='linear', class_agnostic=True, split_thr=20)], ids=str)
def test_soft_suppression_is_that_of_mmdet(settings: dict[str, Any]) -> None:
    adapter, expected, evidence, image = outputs('retinanet', nms=dict(type='soft_nms', min_score=0.05, **settings))
    with torch.no_grad():
        read = adapter.read(run_test_step_on(adapter, image))
    result = compare_detections(expected, read, evidence, 1e-5)
    assert result.get('problem') is None and result['beyond'] == 0 and result['metrics']['rows'] > 20, result


@pytest.mark.parametrize('change', CHANGES)
def test_settings_are_followed_and_another_setting_fails(change: str) -> None:
    """ATSS gives fewer than 100 rows, so that every setting shows."""
    adapter, expected, evidence, image = outputs('atss', **CHANGES[change])
    with torch.no_grad():
        read = adapter.read(run_test_step_on(adapter, image))
    assert compare_detections(expected, read, evidence, 1e-5)['beyond'] == 0
    _, usual, usual_evidence, _ = outputs('atss', max_per_img=len(expected['scores'][0]), nms=dict(type='nms', iou_threshold=0.5))
    assert compare_detections(usual, expected, usual_evidence, 1e-4)['beyond'] > 0.01


def test_boxes_of_the_coder_of_mmdet_1_end_before_the_border() -> None:
    from mmdet.models.task_modules.coders import LegacyDeltaXYWHBBoxCoder
    model = copy.deepcopy(seeded_detector('retinanet'))
    model.bbox_head.bbox_coder = LegacyDeltaXYWHBBoxCoder()
    adapter = build_adapter(model)
    image = picture((2, 3, 128, 160), 3, adapter)
    with torch.no_grad():
        raw, recorded = adapter.run_with_evidence(image)
        expected = dict(zip([spec.name for spec in adapter.specs], adapter.final(raw, image), strict=True))
        read = adapter.read(run_test_step_on(adapter, image))
    assert expected['boxes'].amax((0, 1)).tolist()[2:] == [159.0, 127.0]
    assert compare_detections(expected, read, adapter.evidence(raw, image, recorded), 1e-5)['beyond'] == 0


def test_an_empty_picture_has_no_rows() -> None:
    adapter, expected, evidence, image = outputs('atss', score_thr=0.9999)
    assert expected['num'].tolist() == [0, 0] and not any(bool(value.any()) for value in expected.values())
    read = adapter.read(run_test_step_on(adapter, image))
    assert compare_detections(expected, read, evidence, 1e-5)['beyond'] == 0


def rows(boxes: list[list[float]], scores: list[float]) -> Candidates:
    return Candidates(torch.tensor([boxes]), torch.tensor([scores]), torch.zeros(1, len(scores), dtype=torch.int64),
                      torch.ones(1, len(scores), dtype=torch.bool))


@pytest.mark.parametrize(('overlap', 'doubt'), [(0.5 + 1e-4, True), (0.5 - 1e-4, True), (0.6, False), (0.4, False)])
def test_a_box_at_the_threshold_makes_those_it_decides_unsure(overlap: float, doubt: bool) -> None:
    """The second box overlaps the first one by about the threshold, the third one overlaps the second one only."""
    from mmexport.adapters.detection.boxes.evidence import close_calls
    width = 100 * 2 * overlap / (1 + overlap)
    left = 100 - width
    candidates = rows([[0, 0, 100, 100], [left, 0, left + 100, 100], [left + 20, 0, left + 120, 100]], [0.9, 0.8, 0.7])
    cfg = dict(score_thr=0.05, max_per_img=5, nms=dict(type='nms', iou_threshold=0.5))
    evidence = close_calls(candidates, cfg, 10.0)
    _, scores, _, num = kept(candidates, cfg)
    unsure = {round(float(score), 1) for score in scores[0][evidence['unsure'][0]]}
    maybe = {round(float(row[4]), 1) for row in evidence['maybe'][0] if row[5] >= 0}
    assert (unsure | maybe == {0.8, 0.7}) if doubt else not (unsure | maybe)
    assert not unsure & maybe and int(num[0]) == 2


@pytest.mark.parametrize(('label', 'doubt'), [(0, False), (79, True)])
def test_small_boxes_far_away_are_rounded(label: int, doubt: bool) -> None:
    """A box of 2 px is moved by its class to 100,000, where float32 has steps of 0.008."""
    from mmexport.adapters.detection.boxes.evidence import close_calls
    candidates = rows([[0, 0, 2, 2], [0, 0.66, 2, 2.66], [1200, 700, 1333, 800]], [0.9, 0.8, 0.7])
    candidates = candidates._replace(labels=torch.full((1, 3), label))
    evidence = close_calls(candidates, dict(score_thr=0.05, max_per_img=5, nms=dict(type='nms', iou_threshold=0.5)), 10.0)
    assert bool(evidence['unsure'].any() or (evidence['maybe'][..., 5] >= 0).any()) is doubt


def test_ties_at_the_limit_are_exempt() -> None:
    from mmexport.adapters.detection.boxes.evidence import close_calls
    apart = [[100.0 * number, 0.0, 100.0 * number + 10, 10.0] for number in range(4)]
    cfg = dict(score_thr=0.05, max_per_img=2, nms=dict(type='nms', iou_threshold=0.5))
    evidence = close_calls(rows(apart, [0.9, 0.8, 0.8, 0.3]), cfg, 10.0)
    assert evidence['unsure'].tolist() == [[False, True]]
    assert evidence['maybe'][0, 0].tolist() == pytest.approx([200, 0, 210, 10, 0.8, 0])
    assert not bool(close_calls(rows(apart, [0.9, 0.8, 0.7, 0.3]), cfg, 10.0)['unsure'].any())


@pytest.mark.parametrize('count', [1, 7, 50, 6000])
@pytest.mark.parametrize('places', [3, 60])
@pytest.mark.parametrize('background', [0, 1])
def test_the_best_pairs_are_those_of_a_list_of_all(places: int, count: int, background: int) -> None:
    scores = torch.randn(2, places, 5 + background, generator=torch.Generator().manual_seed(0))
    values, place, label = best_pairs(scores, count, background)
    scores = scores[..., :5]
    expected, order = scores.flatten(1).sort(dim=1, descending=True)
    there = min(count, places * 5)
    assert torch.equal(values[:, :there], expected[:, :count])
    assert torch.equal(place[:, :there] * 5 + label[:, :there], order[:, :count])
    assert bool((values[:, there:] == float('-inf')).all())


def test_a_head_with_a_decoder_of_its_own_is_refused_in_words() -> None:
    model = copy.copy(seeded_detector('atss'))

    class OwnHead(type(model.bbox_head)):  # type: ignore[misc]
        def _predict_by_feat_single(self, *args: Any, **kwargs: Any) -> Any:
            return super()._predict_by_feat_single(*args, **kwargs)

    model._modules = {**model._modules, 'bbox_head': copy.copy(model.bbox_head)}
    model.bbox_head.__class__ = OwnHead
    with pytest.raises(UnsupportedModelError, match='decodes by OwnHead._predict_by_feat_single, which mmexport does not know: leave it'):
        build_adapter(model)
    assert build_adapter(model, outputs='raw').raw_specs[0].name == 'scores_0'


def test_an_unknown_mask_head_of_queries_is_refused() -> None:
    model = copy.deepcopy(seeded_detector('sparse_rcnn'))
    model.roi_head.mask_head = nn.ModuleList([nn.Identity()])  # type: ignore[union-attr]
    with pytest.raises(UnsupportedModelError, match='Identity decides by a predict_by_feat of none, which mmexport does not know'):
        build_adapter(model)


def test_config_without_a_limit_of_rows_is_refused() -> None:
    model = copy.deepcopy(seeded_detector('retinanet'))
    model.bbox_head.test_cfg.max_per_img = -1
    with pytest.raises(UnsupportedModelError, match='max_per_img is -1, with which mmdet drops the last box'):
        build_adapter(model)


@pytest.mark.parametrize(('name', 'part'), [('retinanet', 'bbox_head'), ('faster_rcnn', 'rpn_head'), ('paa', 'bbox_head')])
def test_config_without_a_limit_of_candidates_is_refused(name: str, part: str) -> None:
    model = copy.deepcopy(seeded_detector(name))
    getattr(model, part).test_cfg['nms_pre'] = -1
    with pytest.raises(UnsupportedModelError, match='test_cfg.nms_pre is -1'), torch.no_grad():
        build_adapter(model)(torch.zeros(1, 3, 128, 160))
