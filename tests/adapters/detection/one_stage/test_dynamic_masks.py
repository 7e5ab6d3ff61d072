"""Test one-stage detectors whose head gives each box the weights of a network for its mask."""
from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mmexport import instance_data
from mmexport.adapters import build_adapter
from mmexport.adapters.detection.one_stage.dynamic_masks import DynamicMasks
from mmexport.checker.rules.detection_rows import compare_detections, overlaps
from mmexport.errors import UnsupportedModelError
from mmexport.inputs.synthetic import picture
from mmexport.verification.test_step import run_test_step_on
from tests.detectors import MASKS, exported, seeded_detector, tiny_detector

pytestmark = pytest.mark.xdist_group('dense')


@pytest.mark.parametrize('img_shape', [False, True])
@pytest.mark.parametrize('name', MASKS)
def test_masks_are_those_of_test_step(name: str, img_shape: bool) -> None:
    adapter = build_adapter(seeded_detector(name), img_shape=img_shape)
    inputs = adapter.network_inputs(picture((2, 3, 96, 160), 3, adapter))
    with torch.no_grad():
        raw, recorded = adapter.run_with_evidence(*inputs)
        expected = dict(zip([spec.name for spec in adapter.specs], adapter.final(raw, *inputs), strict=True))
        evidence = adapter.evidence(raw, inputs[0], recorded)
        read = adapter.read(run_test_step_on(adapter, *inputs))
    assert expected['masks'].dtype == torch.uint8 and expected['masks'].shape[2:] == (96, 160)
    assert 0.05 < float(expected['masks'].float().mean()) < 0.95 and int(expected['num'].min()) > 20
    result = compare_detections(expected, read, evidence, 1e-5)
    assert result.get('problem') is None and result['beyond'] == 0, result
    assert float(evidence['mask_near'].float().mean()) < 0.01, 'few pixels are in doubt'
    for planted in (lambda masks: masks.roll(1, dims=3), lambda masks: masks.roll(1, dims=1), lambda masks: masks.roll(1, dims=0)):
        wrong = copy.deepcopy(expected)
        wrong['masks'] = planted(wrong['masks'])
        assert compare_detections(expected, wrong, evidence, 1e-4)['beyond'] > 0, 'of one pixel beside, of another row, of another picture'


def test_a_picture_without_detections_has_no_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = build_adapter(seeded_detector('rtmdet_ins'))
    inputs = adapter.network_inputs(picture((1, 3, 96, 160), 3, adapter))
    monkeypatch.setitem(adapter.model.bbox_head.test_cfg, 'score_thr', 1.0)
    with torch.no_grad():
        outputs = adapter(*inputs)
        read = adapter.read(run_test_step_on(adapter, *inputs))
    assert int(outputs[3]) == 0 and not outputs[4].any()
    assert int(read['num']) == 0 and read['masks'].shape == outputs[4].shape


@pytest.mark.parametrize('name', ['rtmdet_ins', 'condinst', 'yolact'])
def test_the_way_back_to_the_original_picture(name: str) -> None:
    """mmdet enlarges probabilities and the file's masks are decided: edges differ, a mask as a whole does not."""
    model, size, factor = seeded_detector(name), (128, 160), 0.5
    adapter = build_adapter(model)
    image = picture((1, 3, *size), 3, adapter)
    samples = adapter.data_samples(image)
    for sample in samples:
        sample.set_metainfo(dict(ori_shape=(256, 320), scale_factor=(factor, factor)))
    with torch.no_grad():
        outputs = {spec.name: value.numpy() for spec, value in zip(adapter.specs, adapter(image), strict=True)}
        theirs = model.predict(adapter.normalized(image)[0], samples, rescale=True)[0].pred_instances
    ours = instance_data(outputs, [samples[0].metainfo])[0]
    assert ours.masks.shape == theirs.masks.shape and ours.masks.dtype == torch.bool and len(ours) > 20
    matched = 0
    for row in range(len(ours)):
        near = (overlaps(ours.bboxes[row:row + 1], theirs.bboxes)[0] > 0.999) & ((ours.scores[row] - theirs.scores).abs() < 1e-5)
        if near.sum() == 1 and int(ours.masks[row].sum()) > 400:
            mask = theirs.masks[near][0]
            matched += 1
            assert int((mask & ours.masks[row]).sum()) / int((mask | ours.masks[row]).sum()) > 0.9
    assert matched > 10


def test_a_head_of_its_own_is_refused() -> None:
    model = copy.deepcopy(seeded_detector('rtmdet_ins'))

    class Head(type(model.bbox_head)):  # type: ignore[misc]
        def _mask_predict_by_feat_single(self, *args: Any) -> Tensor:
            return super()._mask_predict_by_feat_single(*args).neg()

    model.bbox_head.__class__ = Head
    with pytest.raises(UnsupportedModelError, match='Head decides by a _mask_predict_by_feat_single of Head, which mmexport does not know'):
        build_adapter(model)
    assert build_adapter(model, outputs='raw').specs[-1].name == 'features_0'


def quick(backend: str) -> Any:
    return tiny_detector('rtmdet_ins', backends=[backend], verify=dict(shapes=[(160, 96)], noises=1, batch=2))


@pytest.mark.slow
def test_a_file_gives_them(tmp_path: Path) -> None:
    report = exported('rtmdet_ins', quick('torchscript'), tmp_path)
    assert report.passed, report.reasons
    masks = report.artifacts[0].manifest['outputs'][4]
    assert (masks['name'], masks['dtype'], list(masks['axes'])) == ('masks', 'uint8', ['batch', 'row', 'height', 'width'])


@pytest.mark.slow
def test_masks_of_the_picture_before_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = DynamicMasks._logits

    def planted(self: DynamicMasks, features: Tensor, *others: Tensor) -> Tensor:
        return computed(self, features.roll(1, dims=0) if torch.jit.is_tracing() else features, *others)

    monkeypatch.setattr(DynamicMasks, '_logits', planted)
    report = exported('rtmdet_ins', quick('torchscript'), tmp_path)
    assert report.passed is False
    assert any('detections' in reason for reason in report.reasons), report.reasons
