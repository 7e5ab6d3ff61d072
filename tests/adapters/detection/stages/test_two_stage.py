"""Test detectors of two stages: their boxes are those of mmdet, doubts of the first stage reach the second, and faults are caught."""
from __future__ import annotations

import copy

import pytest
import torch

from mmexport.adapters import build_adapter
from mmexport.adapters.detection.stages import regions
from mmexport.adapters.detection.stages.regions import CLOSE, sizes_in_doubt
from mmexport.checker.rules.detection_rows import compare_detections
from mmexport.compat import provide_mmcv_ext
from mmexport.errors import UnsupportedModelError
from mmexport.inputs.synthetic import picture
from mmexport.verification.test_step import run_test_step_on
from tests.detectors import STAGES, seeded_detector

# One worker runs them: they share what is computed once.
pytestmark = pytest.mark.xdist_group('two_stage')

WITH_MASKS = ('mask_rcnn', 'cascade_mask_rcnn', 'htc', 'ms_rcnn', 'point_rend')
provide_mmcv_ext()


@pytest.mark.parametrize('size', [(128, 160), (97, 161)])
# TridentNet is not small: benchmarks/detectors.py exports it.
@pytest.mark.parametrize('name', [pytest.param(name, marks=pytest.mark.slow) if name == 'double_head' else name
                                  for name in STAGES if name != 'tridentnet'])
def test_detections_equal_test_step(name: str, size: tuple[int, int]) -> None:
    adapter = build_adapter(seeded_detector(name))
    image = picture((2, 3, *size), 3, adapter)
    with torch.no_grad():
        raw, _ = adapter.run_with_evidence(image)
        expected = dict(zip([spec.name for spec in adapter.specs], adapter.final(raw, image), strict=True))
        evidence = adapter.evidence(raw, image, {})
        read = adapter.read(run_test_step_on(adapter, image))
    assert int(expected['num'].min()) > 20 and len(expected['labels'].unique()) > 5
    assert ('masks' in expected) is (name in WITH_MASKS)
    result = compare_detections(expected, read, evidence, 1e-5)
    assert result.get('problem') is None and result['beyond'] == 0, result
    assert float(evidence['unsure'].float().mean()) < 0.4


def test_what_is_fused_is_not_exported_as_instances() -> None:
    """Panoptic FPN has the parts of Mask R-CNN, and its result is another."""
    model = copy.deepcopy(seeded_detector('mask_rcnn'))
    model.panoptic_fusion_head = torch.nn.Identity()
    with pytest.raises(UnsupportedModelError, match='no adapter knows MaskRCNN'):
        build_adapter(model)


def test_proposals_are_those_of_mmdet() -> None:
    model = seeded_detector('faster_rcnn')
    adapter = build_adapter(model)
    image = picture((2, 3, 128, 160), 5, adapter)
    with torch.no_grad():
        features = model.extract_feat(image)  # type: ignore[operator]
        expected = model.rpn_head.predict(features, adapter.data_samples(image), rescale=False)  # type: ignore[operator, union-attr]
        answer = regions.proposals(model.rpn_head, model.rpn_head(features)[:2], adapter.sizes_of(image))  # type: ignore[operator, attr-defined]
    for number, rows in enumerate(expected):
        assert int(answer.valid[number].sum()) == len(rows) > 50
        assert float((answer.boxes[number, :len(rows)] - rows.bboxes).abs().max()) < 1e-4


@pytest.mark.parametrize(('side', 'doubt'), [(112.0 * (1 + CLOSE / 4), True), (112.0, True), (120.3, False), (56.0, True), (55.0, False)])
def test_regions_at_a_limit_of_level_or_samples_are_unsure(side: float, doubt: bool) -> None:
    """The second level begins at 112 px; of the first, a bin has two cells at 56 px, which is exact if it ends with the picture."""
    extractor = copy.deepcopy(seeded_detector('faster_rcnn').roi_head.bbox_roi_extractor)
    exact = side == 56.0
    boxes = torch.tensor([[[0.0, 0.0, side * (1 + CLOSE / 5 if exact else 1), side]]])
    assert bool(sizes_in_doubt(extractor, boxes)) is doubt


@pytest.mark.parametrize(('path', 'words'), [
    ('sabl/sabl-faster-rcnn_r50_fpn_1x_coco.py', 'SABL'), ('scnet/scnet_r50_fpn_1x_coco.py', 'SCNetRoIHead decides by'),
    ('guided_anchoring/ga-faster-rcnn_r50-caffe_fpn_1x_coco.py', 'makes proposals by')])
def test_what_is_not_known_is_refused_in_words(path: str, words: str) -> None:
    from mmexport.model.build import build_model
    from mmexport.model.config import load_config
    cfg = load_config(f'mmdet::{path}')
    cfg.model.backbone.init_cfg = None
    model = build_model(cfg)
    with pytest.raises(UnsupportedModelError, match=words):
        build_adapter(model)


def test_mmdeploy_names_with_and_without_masks() -> None:
    for name, others in (('faster_rcnn', []), ('mask_rcnn', ['masks'])):
        assert [spec.name for spec in build_adapter(seeded_detector(name), names='mmdeploy').specs] == ['dets', 'labels', *others]


def test_padding_is_left_out_of_regions_too() -> None:
    """Boxes end with the picture in both stages where the file is told where it ends."""
    model = seeded_detector('faster_rcnn')
    adapter = build_adapter(model, img_shape=True)
    image = picture((2, 3, 128, 160), 4, adapter)
    inputs = adapter.network_inputs(image)
    with torch.no_grad():
        raw, recorded = adapter.run_with_evidence(*inputs)
        expected = dict(zip([spec.name for spec in adapter.specs], adapter.final(raw, *inputs), strict=True))
        evidence = adapter.evidence(raw, inputs[0], recorded)
        read = adapter.read(run_test_step_on(adapter, *inputs))
    assert inputs[1].tolist() == [[96, 96], [128, 160]]
    assert float(expected['boxes'][0, :, 2].max()) <= 96
    assert compare_detections(expected, read, evidence, 1e-5)['beyond'] == 0


def test_regions_that_are_cut_otherwise_are_refused() -> None:
    from mmcv.ops import RoIPool
    model = copy.deepcopy(seeded_detector('faster_rcnn'))
    model.roi_head.bbox_roi_extractor.roi_layers[1] = RoIPool(7, 0.125)
    with pytest.raises(UnsupportedModelError, match='cuts regions by RoIPool, and mmexport knows'):
        build_adapter(model)
    model.roi_head.bbox_roi_extractor.roi_layers[1] = copy.deepcopy(model.roi_head.bbox_roi_extractor.roi_layers[0])
    model.roi_head.bbox_roi_extractor.roi_layers[1].pool_mode = 'max'
    with pytest.raises(UnsupportedModelError, match="RoIAlign with pool_mode 'max'"):
        build_adapter(model)
    model = copy.deepcopy(seeded_detector('mask_rcnn'))
    model.roi_head.mask_roi_extractor.roi_layers[0] = RoIPool(14, 0.25)
    with pytest.raises(UnsupportedModelError, match='cuts regions by RoIPool'):
        build_adapter(model)
