"""Test that the choices of a DDQ are recorded and followed, in upstream's code and in the patched one."""
from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from mmexport.adapters import build_adapter
from mmexport.adapters.base import Adapter
from mmexport.adapters.detection.distinct_choices import DISTINCT
from mmexport.adapters.detection.selection import PLACES
from mmexport.inputs.synthetic import picture
from mmexport.patching import patched
from tests.detectors import seeded_detector

PATCHES = ['DdqQueries', 'DeformableDetrShapes', 'DinoDecoder', 'MultiScaleDeformableAttention']
SHAPE = (2, 3, 128, 160)


@pytest.fixture(scope='module')
def adapter() -> Adapter:
    return build_adapter(seeded_detector('ddq'), outputs='raw')


def run(adapter: Adapter, image: Tensor, by_patches: bool) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    with torch.no_grad(), patched(PATCHES) if by_patches else nullcontext():
        outputs, evidence = adapter.run_with_evidence(image)
    return dict(zip([spec.name for spec in adapter.raw_specs], outputs, strict=True)), evidence


def test_both_record_the_same(adapter: Adapter) -> None:
    assert adapter.choices == (PLACES, DISTINCT)
    image = picture(SHAPE, 1, adapter)
    (own, evidence), (other, other_evidence) = (run(adapter, image, by_patches) for by_patches in (False, True))
    assert own[PLACES].shape == (2, 100) and own[DISTINCT].shape == (2, 1, 100)
    assert all(torch.equal(own[name], other[name]) for name in adapter.choices)
    assert evidence.keys() == other_evidence.keys()
    for name, values in evidence.items():
        torch.testing.assert_close(other_evidence[name], values, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('by_patches', [False, True])
def test_choices_are_followed_inside_the_block_alone(adapter: Adapter, by_patches: bool) -> None:
    """Fewer places, in another order; a layer that leaves out what it would keep."""
    image = picture(SHAPE, 1, adapter)
    own, _ = run(adapter, image, by_patches)
    places, distinct = own[PLACES].flip(1), own[DISTINCT].clone()
    places[1, 90:] = -1
    distinct[:, :, 3::7] = 0
    with adapter.following({PLACES: places, DISTINCT: distinct}):
        followed, evidence = run(adapter, image, by_patches)
    assert torch.equal(followed[PLACES], places) and torch.equal(followed[DISTINCT], distinct)
    assert float((followed['cls_logits'] - own['cls_logits']).abs().max()) > 0.1
    assert float(evidence['query_scores'].min()) >= 0, 'all queries take part in the first layer'
    after, _ = run(adapter, image, by_patches)
    assert all(torch.equal(after[name], own[name]) for name in own)


def test_patched_and_upstream_agree_where_they_follow(adapter: Adapter) -> None:
    image = picture(SHAPE, 1, adapter)
    own, _ = run(adapter, image, False)
    # The first query goes, so that a third layer would choose among those that stayed.
    distinct = own[DISTINCT].clone()
    distinct[:, :, ::5] = 0
    with adapter.following({PLACES: own[PLACES].flip(1), DISTINCT: distinct}):
        (one, evidence), (other, other_evidence) = (run(adapter, image, by_patches) for by_patches in (False, True))
    for expected, actual in ((one, other), (evidence, other_evidence)):
        for name, values in expected.items():
            torch.testing.assert_close(actual[name], values, rtol=1e-4, atol=1e-3)
