"""Check bilinear values at points against torch's ``grid_sample``, and the weights of a resize against ``interpolate``."""
from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from mmexport.ops.bilinear import bilinear_weights, sampled


@pytest.mark.parametrize('size', [(7, 11), (1, 1), (2, 30)])
def test_values_at_points_are_torchs(size: tuple[int, int]) -> None:
    maps, points = torch.randn(3, 5, *size), torch.rand(3, 40, 2) * 1.6 - 0.3
    expected = F.grid_sample(maps, points[:, :, None] * 2 - 1, align_corners=False)[..., 0]
    scale = torch.tensor([size[1], size[0]])
    actual = sampled(maps, torch.arange(3), points * scale - 0.5)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-4)
    # The maps of other rows, in any order.
    order = torch.tensor([2, 0, 2, 1])
    assert torch.equal(sampled(maps, order, points[order] * scale - 0.5), actual[order])


@pytest.mark.parametrize('align_corners', [True, False])
@pytest.mark.parametrize(('side', 'size'), [(5, 12), (12, 5), (1, 4), (7, 7), (6, 1)])
def test_weights_are_those_of_a_resize(side: int, size: int, align_corners: bool) -> None:
    values = torch.randn(2, 3, side)
    expected = F.interpolate(values, size=size, mode='linear', align_corners=align_corners)
    actual = values @ bilinear_weights(side, size, align_corners, None, values).T
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-4)
