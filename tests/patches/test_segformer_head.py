from __future__ import annotations

import pytest
import torch

from mmexport.compat import provide_mmcv_ext
from tests.patches.comparing import ROUNDING, both, traced_once

provide_mmcv_ext()
SIDES = ((16, 24), (8, 12), (4, 6), (2, 3))
ODD = ((17, 21), (9, 11), (5, 6), (3, 3))


def _maps(sides: tuple[tuple[int, int], ...], batch: int) -> list[torch.Tensor]:
    return [torch.randn(batch, channels, *side) for channels, side in zip((4, 6, 8, 10), sides, strict=True)]


def _head(**kwargs: object) -> torch.nn.Module:
    from mmseg.models.decode_heads import SegformerHead
    given = dict(in_channels=[4, 6, 8, 10], in_index=[0, 1, 2, 3], channels=12, num_classes=5, norm_cfg=dict(type='BN'),
                 align_corners=False)
    head = SegformerHead(**{**given, **kwargs}).eval()
    for module in head.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            torch.nn.init.normal_(module.weight)
            torch.nn.init.normal_(module.bias)
    torch.nn.init.normal_(head.conv_seg.weight)
    return head  # type: ignore[no-any-return]


@pytest.mark.parametrize('kwargs', [dict(), dict(align_corners=True), dict(interpolate_mode='nearest', align_corners=None),
                                    dict(norm_cfg=None), dict(act_cfg=dict(type='GELU'))])
def test_mixing_first_equals_upstream(kwargs: dict[str, object]) -> None:
    head = _head(**kwargs)
    for sides, batch in ((SIDES, 1), (ODD, 3)):
        maps = _maps(sides, batch)
        one, other = both('FusionBeforeUpsampling', lambda maps=maps: head(maps))
        assert not torch.equal(one, other)
        assert float((one - other).abs().max()) < 2 * ROUNDING * float(one.abs().max())


def test_a_traced_head_takes_other_sizes() -> None:
    head = _head()
    traced = traced_once('FusionBeforeUpsampling', head, (_maps(SIDES, 1),))
    maps = _maps(ODD, 2)
    with torch.no_grad():
        expected = head(maps)
    assert float((traced(maps) - expected).abs().max()) < 2 * ROUNDING * float(expected.abs().max())


def test_a_fusion_that_looks_at_neighbours_is_left_alone() -> None:
    from mmcv.cnn import ConvModule
    head = _head()
    head.fusion_conv = ConvModule(48, 12, 3, padding=1, norm_cfg=dict(type='BN')).eval()
    maps = _maps(SIDES, 1)
    one, other = both('FusionBeforeUpsampling', lambda: head(maps))
    assert torch.equal(one, other)
