"""Test our decisions, from tensor operations, against OpenMMLab's own post-processing."""
from __future__ import annotations

import copy

import pytest
import torch

from mmexport.adapters import MaskClassification, Segmentation, SemanticMasks, build_adapter
from mmexport.checker.rules.instance_rows import compare_instances
from mmexport.errors import ConfigError, UnsupportedModelError
from mmexport.inputs.synthetic import picture
from mmexport.model.build import build_model
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
