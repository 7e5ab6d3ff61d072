"""Test what the manifest says of the test pipeline."""
from __future__ import annotations

from typing import Any

import pytest
from mmengine.config import Config

from mmexport.export.manifest import pad_rule, resize_rule
from mmexport.model.config import load_config


@pytest.mark.parametrize(('step', 'rule'), [
    (dict(type='Pad', size=(640, 640), pad_val=dict(img=(114, 114, 114))), dict(size=(640, 640), value=(114, 114, 114))),
    (dict(type='mmdet.Pad', size_divisor=32), dict(size_divisor=32, value=0)),
    (dict(type='Pad', pad_to_square=True, pad_val=7), dict(pad_to_square=True, value=7)),
    (dict(type='RandomCenterCropPad', test_mode=True), None), (dict(type='PackDetInputs'), None)])
def test_the_padding_of_the_pipeline_is_told(step: dict[str, Any], rule: dict[str, Any] | None) -> None:
    """By the manifest alone pictures of RTMDet were padded otherwise, and had other boxes."""
    cfg = Config(dict(test_pipeline=[dict(type='LoadImageFromFile'), dict(type='Resize', scale=(640, 640), keep_ratio=True), step]))
    expected = None if rule is None else {'type': step['type'], **rule, 'when': 'before the normalisation'}
    assert pad_rule(cfg) == expected
    assert resize_rule(cfg) == dict(type='Resize', scale=(640, 640), keep_ratio=True, interpolation='bilinear')


def test_the_padding_of_rtmdet_is_that_of_its_config() -> None:
    rule = pad_rule(load_config('mmdet::rtmdet/rtmdet_tiny_8xb32-300e_coco.py'))
    assert rule is not None
    assert (rule['size'], rule['value']) == ((640, 640), (114, 114, 114))
