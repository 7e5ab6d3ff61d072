"""Test SegNeXt's random bases, drawn once as eager draws them."""
from __future__ import annotations

import pytest
import torch

from mmexport.compat import provide_mmcv_ext
from mmexport.patching import patched
from tests.patches.comparing import traced_once

provide_mmcv_ext()


@pytest.mark.parametrize(('channels', 'bases'), [(16, 4), (512, 16)])
def test_random_bases_are_those_of_eager_from_the_seed(channels: int, bases: int) -> None:
    from mmseg.models.decode_heads.ham_head import NMF2D

    from mmexport.utils.randomness import fixed_seed
    layer = NMF2D(dict(MD_R=bases)).eval()
    before = torch.random.get_rng_state()
    for batch in (1, 3):
        image = torch.rand(batch, channels, 4, 6)
        with fixed_seed():
            expected = layer(image)
        with fixed_seed():
            assert torch.equal(expected, layer(image))
        with patched(['RandomBases']):
            assert torch.equal(layer(image), layer(image))
            assert torch.allclose(layer(image), expected, atol=0, rtol=1e-6)
    torch.random.set_rng_state(before)
    traced = traced_once('RandomBases', layer, (torch.rand(1, channels, 3, 4),))
    image = torch.rand(3, channels, 4, 6)
    with fixed_seed():
        assert torch.allclose(traced(image), layer(image), atol=0, rtol=1e-5)


def test_more_bases_than_are_drawn_are_refused() -> None:
    from mmseg.models.decode_heads.ham_head import NMF2D
    with patched(['RandomBases']), pytest.raises(ValueError, match='raise POOL'):
        NMF2D(dict(MD_R=2048)).eval()(torch.rand(1, 2048, 2, 2))


def test_a_draw_leaves_the_random_numbers_of_others_alone() -> None:
    from mmexport.utils.randomness import fixed_seed
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    with fixed_seed():
        torch.rand(5)
    assert torch.equal(torch.rand(3), expected)
