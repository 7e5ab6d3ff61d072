from __future__ import annotations

import pytest
import torch

from mmexport.compat import provide_mmcv_ext
from tests.patches.comparing import both, traced_once

provide_mmcv_ext()


def _block() -> torch.nn.Module:
    from mmseg.models.decode_heads.dpt_head import FeatureFusionBlock
    torch.manual_seed(0)
    return FeatureFusionBlock(6, act_cfg=dict(type='ReLU'), norm_cfg=dict(type='BN')).eval()  # type: ignore[no-any-return]


def _maps(*sides: tuple[int, int]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(2, 6, *side) for side in sides)


@pytest.mark.parametrize('sides', [[(8, 8)], [(8, 10), (8, 10)], [(13, 4), (14, 4)]])
def test_a_fusion_that_always_resizes_equals_upstream(sides: list[tuple[int, int]]) -> None:
    maps, block = _maps(*sides), _block()
    one, other = both('FusionShapes', lambda: block(*(part.clone() for part in maps)))  # It writes into its maps.
    assert torch.equal(one, other)


def test_a_traced_fusion_takes_maps_that_differ() -> None:
    block = _block()
    traced = traced_once('FusionShapes', block, _maps((8, 8), (8, 8)))
    maps = _maps((13, 4), (14, 4))
    with torch.no_grad():
        torch.testing.assert_close(traced(*maps), block(*maps))
