"""Test that a file's detections become those of mmdet in the original picture."""
from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mmexport import instance_data
from mmexport.adapters import build_adapter
from mmexport.adapters.detection.pasting import pasted
from mmexport.checker.rules.detection_rows import overlaps
from mmexport.errors import InputError
from mmexport.inputs.synthetic import picture
from tests.detectors import seeded_detector

pytestmark = pytest.mark.xdist_group('two_stage')
SIZES, ORIGINAL = (128, 160), (200, 331)
FACTOR = (SIZES[1] / ORIGINAL[1], SIZES[0] / ORIGINAL[0])


def expected_of(model: Any, image: Tensor, samples: list[Any]) -> list[Any]:
    for sample in samples:
        sample.set_metainfo(dict(ori_shape=ORIGINAL, scale_factor=FACTOR))
        if 'border' in sample:
            sample.set_metainfo(dict(border=(4, SIZES[0] - 3, 11, SIZES[1] - 10)))
    with torch.no_grad():
        return [sample.pred_instances for sample in model.predict(image, samples, rescale=True)]


@pytest.mark.parametrize('name', ['atss', 'mask_rcnn', 'cascade_mask_rcnn', 'centernet'])
def test_boxes_and_masks_are_those_of_predict(name: str) -> None:
    model = seeded_detector(name)
    adapter = build_adapter(model)
    image = picture((2, 3, *SIZES), 3, adapter)
    with torch.no_grad():
        raw, _ = adapter.run_with_evidence(image)
        outputs = {spec.name: value.numpy() for spec, value in zip(adapter.specs, adapter.final(raw, image), strict=True)}
        unsure = adapter.evidence(raw, image, {})['unsure']
    samples = adapter.data_samples(image)  # type: ignore[attr-defined]
    expected = expected_of(model, image, samples)
    # Probabilities differ by rounding; those of a cascade are limited, see `MOST_CERTAIN`.
    slack = 1e-3 if name.startswith('cascade') else 1e-5
    actual, larger, smaller = (instance_data(outputs, [sample.metainfo for sample in samples], 0.5 + moved) for moved in (0, -slack, slack))
    for number, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        sure = [row for row in range(len(ours)) if not unsure[number, row]]
        same = (overlaps(ours.bboxes, theirs.bboxes) > 0.99) & (ours.labels[:, None] == theirs.labels)
        same &= (ours.scores[:, None] - theirs.scores).abs() < 1e-4
        pairs = [(row, int(same[row].nonzero()[0])) for row in sure if same[row].sum() == 1]
        assert len(pairs) > 0.7 * len(ours) > 15
        for row, other in pairs:
            assert float((ours.bboxes[row] - theirs.bboxes[other]).abs().max()) < 1e-3
        assert ours.labels.dtype == theirs.labels.dtype
        if 'masks' in theirs:
            assert ours.masks.shape == (len(ours), *ORIGINAL) and ours.masks.dtype == torch.bool
            for row, other in pairs:
                assert not (smaller[number].masks[row] & ~theirs.masks[other]).any()
                assert not (theirs.masks[other] & ~larger[number].masks[row]).any()
            assert float((larger[number].masks & ~smaller[number].masks).float().sum()) < 0.03 * float(ours.masks.float().sum())
            assert float(ours.masks.float().mean()) > 0.01


def test_pasting_is_that_of_mmdet() -> None:
    from mmdet.models.roi_heads.mask_heads.fcn_mask_head import _do_paste_mask
    generator = torch.Generator().manual_seed(0)
    corners = torch.rand(20, 2, 2, generator=generator).sort(dim=1).values.flatten(1) * torch.tensor([90.0, 70.0]).repeat(2) - 10
    masks = torch.rand(20, 1, 14, 14, generator=generator)
    expected, _ = _do_paste_mask(masks, corners, 61, 83, skip_empty=False)
    assert float((pasted(masks[:, 0], corners, 61, 83) - expected).abs().max()) < 1e-4
    assert not pasted(masks[:1, 0], torch.tensor([[5.0, 5, 5, 9]]), 61, 83).any(), 'a box without area'


@pytest.mark.parametrize(('outputs', 'metas', 'words'), [
    (dict(boxes=torch.zeros(1, 2, 4)), [{}], 'scores, labels, num are missing'),
    (dict(boxes=torch.zeros(1, 2, 4), scores=torch.zeros(1, 2), labels=torch.zeros(1, 2), num=torch.tensor([1])), [], '1 pictures'),
    (dict(boxes=torch.zeros(1, 2, 4), scores=torch.zeros(1, 2), labels=torch.zeros(1, 2), num=torch.tensor([1])),
     [dict(ori_shape=(4, 4))], 'no scale_factor')])
def test_what_is_missing_is_told(outputs: dict[str, Tensor], metas: list[Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        instance_data(outputs, metas)


def test_mmdets_evaluator_and_visualizer_take_them() -> None:
    import numpy as np
    from mmdet.evaluation import CocoMetric
    from mmdet.structures import DetDataSample
    from mmdet.visualization import DetLocalVisualizer
    from pycocotools import mask as rle
    model = seeded_detector('mask_rcnn')
    adapter = build_adapter(model)
    image = picture((1, 3, *SIZES), 3, adapter)
    with torch.no_grad():
        outputs = dict(zip([spec.name for spec in adapter.specs], adapter.final(adapter.raw(image), image), strict=True))
    samples = adapter.data_samples(image)  # type: ignore[attr-defined]
    expected, = expected_of(model, image, samples)
    actual, = instance_data(outputs, [samples[0].metainfo])
    # The first of mmdet's detections stand for what is in the picture.
    truth = [dict(bbox=row.bboxes[0].tolist(), bbox_label=int(row.labels[0]), ignore_flag=0,
                  mask=rle.encode(np.asfortranarray(row.masks[0].numpy().astype(np.uint8)))) for row in (expected[n] for n in range(10))]
    scores = []
    for instances in (expected, actual):
        metric = CocoMetric(metric=['bbox', 'segm'])
        metric.dataset_meta = dict(classes=[str(number) for number in range(12)])
        metric.process({}, [dict(pred_instances=instances.to_dict(), img_id=0, ori_shape=ORIGINAL, instances=truth)])
        scores.append(metric.evaluate(1))
    assert scores[0]['coco/bbox_mAP'] > 0.2 and scores[0]['coco/segm_mAP'] > 0.2
    assert scores[1] == pytest.approx(scores[0], abs=1e-3)
    drawn = DetLocalVisualizer()
    drawn.dataset_meta = dict(classes=[str(number) for number in range(12)])
    blank = np.zeros((*ORIGINAL, 3), np.uint8)
    drawn.add_datasample('one', blank, DetDataSample(pred_instances=actual), draw_gt=False, pred_score_thr=0.0)
    assert drawn.get_image().any()
