"""Test that Deformable DETR and DINO compute the same with sizes for level shapes, at any size and batch. Padding is masked."""
from __future__ import annotations

import pytest
import torch

from mmexport.adapters import build_adapter
from mmexport.adapters.image_metas import image_metas
from mmexport.inputs.synthetic import picture
from mmexport.patching import patched
from tests.detectors import seeded_detector

PATCHES = ['DeformableDetrShapes', 'DinoDecoder', 'MultiScaleDeformableAttention']


@pytest.mark.parametrize('name', ['deformable_detr', 'dino'])
@pytest.mark.parametrize('shape', [(2, 3, 128, 160), (1, 3, 161, 250)])
def test_patched_computes_what_upstream_computes(name: str, shape: tuple[int, int, int, int]) -> None:
    adapter = build_adapter(seeded_detector(name), outputs='raw')
    image = picture(shape, 1, adapter)
    with torch.no_grad():
        expected = adapter.raw(image)
        with patched(PATCHES) as rows:
            actual = adapter.raw(image)
    assert {row.name for row in rows if row.acted} == set(PATCHES) - ({'DinoDecoder'} if name == 'deformable_detr' else set())
    for one, other in zip(expected, actual, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-4)
    assert float(expected[0].std()) > 0.5


@pytest.mark.parametrize('name', ['detr', 'dino'])
def test_pictures_that_do_not_fill_their_input_are_masked_as_upstream_masks_them(name: str) -> None:
    """With the data samples of upstream's own callers, not those of an adapter."""
    from mmdet.structures import DetDataSample
    model = seeded_detector(name)
    image = picture((2, 3, 128, 160), 1, build_adapter(model))
    samples = [DetDataSample(metainfo={**image_metas(image)[0], 'img_shape': size}) for size in ((128, 160), (100, 130))]
    with torch.no_grad():
        features = model.extract_feat(image)
        expected = model.forward_transformer(features, samples)['hidden_states']
        with patched('auto'):
            actual = model.forward_transformer(features, samples)['hidden_states']
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-3)
