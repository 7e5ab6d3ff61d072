"""Test what SOLO's heads get from the patches against mmdet's own, also at sizes that were not traced."""
from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mmexport.compat import provide_mmcv_ext
from tests.patches.comparing import both, traced_once

provide_mmcv_ext()


class Located(nn.Module):
    """Add the coordinates of a map to it."""

    def forward(self, x: Tensor) -> Tensor:
        from mmdet.models.dense_heads import solo_head
        return torch.cat([x, solo_head.generate_coordinate(x.size(), x.device)], dim=1)


@pytest.mark.parametrize('size', [(8, 12), (1, 5), (7, 1), (33, 20)])
def test_coordinates_equal_upstream(size: tuple[int, int]) -> None:
    traced = traced_once('Coordinates', Located(), (torch.randn(1, 2, 8, 8),))
    x = torch.randn(3, 2, *size)
    expected, actual = both('Coordinates', lambda: Located()(x))
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(traced(x), actual, atol=1e-6, rtol=0)


@pytest.mark.parametrize('first', [(32, 48), (25, 31), (13, 8)])
def test_resized_features_equal_upstream(first: tuple[int, int]) -> None:
    from mmdet.models.dense_heads.solo_head import SOLOHead
    maps = [torch.randn(2, 3, -(-first[0] // step), -(-first[1] // step)) for step in (1, 2, 4, 8, 16)]
    head = object.__new__(SOLOHead)
    expected, actual = both('SoloFeatures', lambda: SOLOHead.resize_feats(head, tuple(maps)))
    for one, other in zip(expected, actual, strict=True):
        torch.testing.assert_close(other, one, atol=1e-6, rtol=1e-5)
