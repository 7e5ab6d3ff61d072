"""Our decisions, from tensor operations, against OpenMMLab's own post-processing."""
from __future__ import annotations

import copy

import pytest
import torch

from mmexport.adapters import MaskClassification, Segmentation, SemanticMasks, build_adapter
from mmexport.adapters.mask_classification import boxes_of
from mmexport.checker.instances import compare_instances
from mmexport.errors import ConfigError, UnsupportedModelError
from mmexport.inputs.synthetic import picture
from mmexport.model.build import build_model
from mmexport.seeding import seed_model
from tests.predicting import predicted
from tests.tiny import NAMES, SHAPE, seeded, tiny


@pytest.mark.parametrize('name', NAMES)
def test_final_outputs_equal_upstreams_predict(name: str) -> None:
    adapter = build_adapter(seeded(name))
    image = picture(SHAPE, 2, adapter)
    with torch.no_grad():
        actual = dict(zip((spec.name for spec in adapter.specs), adapter(image), strict=True))
        expected = predicted(adapter, image)
    for key in ('labels', 'panoptic'):
        if key in expected and expected[key].dim() == 3:
            assert actual[key].dtype == torch.int32
            assert torch.equal(actual[key], expected[key].to(torch.int32)), key
    if 'masks' in expected:
        assert int(actual['num'][0]) == int(expected['num'][0]) > 0
        verdict = compare_instances(expected, actual, {}, 1e-5)
        assert verdict['beyond'] == 0.0, verdict


@pytest.mark.parametrize(('name', 'cls'), [('fcn', Segmentation), ('pointrend', Segmentation), ('mask2former_r50_ade20k', SemanticMasks),
                                           ('maskformer_r50', MaskClassification)])
def test_the_architecture_decides_the_adapter(name: str, cls: type) -> None:
    assert type(build_adapter(seeded(name))) is cls


def test_panoptic_thresholds_fall_as_upstreams_python_loop_does() -> None:
    """Ratios at the threshold, ties, void, things and stuff, filter_low_score: thirty random cases of each."""
    adapter = build_adapter(seeded('mask2former_r50'))
    assert isinstance(adapter, MaskClassification)
    generator = torch.Generator().manual_seed(0)
    for case in range(60):
        adapter.fusion.test_cfg.filter_low_score = bool(case % 2)
        cls_logits = torch.randn(2, 12, 134, generator=generator) + 9 * torch.nn.functional.one_hot(
            torch.randint(0, 134, (2, 12), generator=generator), 134)
        masks = 3 * torch.randn(2, 12, 10, 12, generator=generator)
        actual = adapter.panoptic(cls_logits, masks)[0]
        for image in range(2):
            expected = adapter.fusion.panoptic_postprocess(cls_logits[image], masks[image]).sem_seg[0]
            assert torch.equal(actual[image], expected)
    adapter.fusion.test_cfg.filter_low_score = True


def test_nothing_found_is_all_void() -> None:
    adapter = build_adapter(seeded('mask2former_r50'))
    assert isinstance(adapter, MaskClassification)
    actual = adapter.panoptic(torch.zeros(1, 5, 134), torch.zeros(1, 5, 4, 4))[0]
    assert (actual == 133).all()


def test_boxes_of_masks() -> None:
    masks = torch.zeros(1, 2, 6, 8, dtype=torch.bool)
    masks[0, 0, 2:4, 1:7] = True
    assert boxes_of(masks).tolist() == [[[1, 2, 7, 4], [0, 0, 0, 0]]]


def test_one_channel_heads_are_thresholded_as_mmseg_does() -> None:
    cfg = tiny('fcn')
    cfg.model.decode_head.update(num_classes=2, out_channels=1, threshold=0.3, loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=True))
    cfg.model.auxiliary_head = None
    model = build_model(cfg)
    seed_model(model)
    adapter = build_adapter(model)
    image = picture(SHAPE, 1, adapter)
    with torch.no_grad():
        labels, scores = adapter(image)
        expected = predicted(adapter, image)['labels']
    assert torch.equal(labels, expected)
    assert set(labels.unique().tolist()) == {0, 1}
    assert torch.equal(labels.bool(), scores > 0.3)


def test_semantic_on_is_refused_as_mmdet_refuses_it() -> None:
    cfg = tiny('mask2former_r50')
    cfg.model.test_cfg.semantic_on = True
    with pytest.raises(UnsupportedModelError, match='semantic_on'):
        build_adapter(build_model(cfg))
    build_adapter(build_model(cfg), outputs='raw')


def test_normalising_inside_the_graph_is_the_data_preprocessors() -> None:
    model = seeded('fcn')
    raw, outside = build_adapter(model, outputs='raw', normalize=True), build_adapter(model, outputs='raw')
    pictures = torch.randint(0, 256, SHAPE).float()
    packed = model.data_preprocessor(dict(inputs=[pictures[0].to(torch.uint8)]), False)['inputs']
    assert torch.allclose(raw.preprocess(pictures), packed, atol=1e-5)
    with torch.no_grad():
        assert torch.allclose(raw(pictures)[0], outside(packed)[0], atol=1e-4)


def test_a_sliding_config_exports_one_window_and_says_so() -> None:
    adapter = build_adapter(seeded('segmenter_vit_s'))
    assert adapter.notes()['sliding']['window'] == [128, 160]
    assert adapter.notes()['sliding']['stride'] == [85, 107]


def test_class_names_of_another_number_are_an_error() -> None:
    model = copy.copy(seeded('segformer_b0'))
    model.dataset_meta = dict(classes=('cat', 'dog'))
    with pytest.raises(ConfigError, match=r'there are 2 class names \(cat, dog, ...\) and the model has 150'):
        _ = build_adapter(model).classes
    model.dataset_meta = dict(classes=tuple(map(str, range(150))))
    assert len(build_adapter(model).classes) == 150


def test_a_depth_estimator_is_refused_by_name() -> None:
    """It has all that a segmentor has, and its outputs are no labels."""
    from mmseg.models import DepthEstimator
    model = seeded('segformer_b0')
    depth = DepthEstimator.__new__(DepthEstimator)
    depth.__dict__.update(model.__dict__)
    with pytest.raises(UnsupportedModelError, match='DepthEstimator'):
        build_adapter(depth)
