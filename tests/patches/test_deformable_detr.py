"""Test that Deformable DETR and DINO compute the same with sizes for level shapes, at any size and batch. Padding is masked."""
from __future__ import annotations

from typing import Any

import pytest
import torch
from mmexport.patches.deformable_detr_shapes import _far_from_ends
from torch import nn

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


# The centre of the last row of 50 is at 0.99 of the side, which is where a proposal is dropped.
AT_THE_LIMIT = [(50, 3), (4, 150), (100, 7), (2, 250)]


def test_proposals_at_the_limit_are_dropped_as_upstream_drops_them() -> None:
    from mmdet.models.detectors import DINO
    memory = torch.rand(1, sum(height * width for height, width in AT_THE_LIMIT), 4) + 1
    model: Any = DINO.__new__(DINO)
    nn.Module.__init__(model)
    model.memory_trans_fc = model.memory_trans_norm = nn.Identity()
    expected = model.gen_encoder_output_proposals(memory, None, torch.tensor(AT_THE_LIMIT))
    with patched(['DeformableDetrShapes']):
        actual = model.gen_encoder_output_proposals(memory, None, AT_THE_LIMIT)
    assert torch.equal(actual[0], expected[0])
    torch.testing.assert_close(actual[1], expected[1])
    dropped = expected[0][0, :, 0].split([height * width for height, width in AT_THE_LIMIT])
    assert bool((dropped[0].view(50, 3)[[0, 49]] == 0).all()) and bool((dropped[0].view(50, 3)[1:49] > 0).all())


def test_no_rounding_decides_whether_a_proposal_is_near_the_end() -> None:
    """A runtime may multiply by the reciprocal: of 50, 49.5 times that is less than 0.99."""
    by_product = set()
    for side in range(1, 1500):
        centres = torch.arange(side, dtype=torch.float32) + 0.5
        expected = (centres / side > 0.01) & (centres / side < 0.99)
        assert torch.equal(_far_from_ends(centres, side), expected), side
        shares = centres * (1 / torch.tensor(float(side)))
        by_product |= {side} if not torch.equal((shares > 0.01) & (shares < 0.99), expected) else set()
    assert 50 in by_product
