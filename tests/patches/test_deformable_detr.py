"""Test that Deformable DETR and DINO compute the same with sizes for level shapes, at any size and batch, and refuse padding."""
from __future__ import annotations

import pytest
import torch

from mmexport.adapters import build_adapter
from mmexport.adapters.image_metas import image_metas
from mmexport.errors import PatchError
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


def test_a_picture_that_does_not_fill_its_input_is_refused() -> None:
    from mmdet.structures import DetDataSample
    model = seeded_detector('deformable_detr')
    image = torch.zeros(1, 3, 128, 160)
    meta = {**image_metas(image)[0], 'img_shape': (100, 160)}
    with torch.no_grad(), patched(PATCHES), pytest.raises(PatchError, match=r'a picture of \(100, 160\) in an input of \(128, 160\)'):
        model.forward_transformer(model.extract_feat(image), [DetDataSample(metainfo=meta)])
