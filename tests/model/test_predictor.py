"""Test that a semi-supervised detector is exported as the copy that it predicts by."""
from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from mmexport.inputs.shapes import input_channels
from mmexport.model.build import build_model, load_model
from mmexport.model.config import load_config
from mmexport.model.predictor import predictor


@pytest.fixture(scope='module')
def cfg() -> Any:
    cfg = load_config('mmdet::soft_teacher/soft-teacher_faster-rcnn_r50-caffe_fpn_180k_semi-0.1-coco.py')
    detector = cfg.model.detector
    detector.backbone = dict(type='ResNet', depth=18, base_channels=16, norm_eval=True)
    detector.neck.update(in_channels=[16, 32, 64, 128], out_channels=32)
    detector.rpn_head.update(in_channels=32, feat_channels=32)
    detector.roi_head.bbox_roi_extractor.out_channels = 32
    detector.roi_head.bbox_head.update(in_channels=32, fc_out_channels=32, num_classes=4)
    # Weights as they are drawn make few boxes that are sure.
    detector.test_cfg.rcnn.update(score_thr=0.0, nms=dict(type='nms', iou_threshold=1.0))
    return cfg


@pytest.mark.parametrize('name', ['teacher', 'student'])
def test_it_answers_as_the_whole_model(cfg: Any, name: str, tmp_path: Path) -> None:
    cfg = copy.deepcopy(cfg)
    cfg.model.semi_test_cfg.predict_on = name
    torch.manual_seed(0)
    whole = build_model(cfg)
    torch.save({'state_dict': whole.state_dict()}, tmp_path / 'weights.pth')
    model, fit = load_model(cfg, str(tmp_path / 'weights.pth'))
    assert fit is not None and not fit.missing and not fit.unexpected
    from mmdet.structures import DetDataSample
    sample = DetDataSample(metainfo=dict(img_shape=(96, 128), ori_shape=(96, 128), scale_factor=(1.0, 1.0)))
    data = dict(inputs=[torch.randint(256, (3, 96, 128), dtype=torch.uint8)], data_samples=[sample])
    with torch.no_grad():
        expected, actual = (part.test_step(copy.deepcopy(data))[0].pred_instances for part in (whole, model))
    assert len(expected) > 10
    assert torch.equal(expected.bboxes, actual.bboxes) and torch.equal(expected.scores, actual.scores)


def test_other_models_stay(cfg: Any) -> None:
    detector = build_model(load_config('mmdet::retinanet/retinanet_r18_fpn_1x_coco.py'))
    assert predictor(detector) is detector


def test_channels_are_those_of_its_detector(cfg: Any) -> None:
    cfg = copy.deepcopy(cfg)
    cfg.model.detector.data_preprocessor.update(mean=[0.0] * 4, std=[1.0] * 4)
    assert input_channels(cfg) == 4
