"""Test SimpleRoIAlign of all regions at once against mmcv's, also with another number of regions for each picture."""
from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mmexport.compat import provide_mmcv_ext
from tests.patches.comparing import both, traced_once

provide_mmcv_ext()


def regions(counts: tuple[int, ...], seed: int) -> Tensor:
    """Make regions in the order of their pictures; some reach beyond the map."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.cat([torch.full((count,), float(number)) for number, count in enumerate(counts)])
    corners = torch.rand(len(image), 2, generator=generator) * 60 - 10
    return torch.cat([image[:, None], corners, corners + torch.rand(len(image), 2, generator=generator) * 50], dim=1)


@pytest.mark.parametrize('aligned', [True, False])
@pytest.mark.parametrize('counts', [(4, 4), (7, 0, 2), (1,)])
def test_it_equals_upstream(aligned: bool, counts: tuple[int, ...]) -> None:
    from mmcv.ops import SimpleRoIAlign
    layer = SimpleRoIAlign((3, 5), 0.25, aligned)
    features, rois = torch.randn(len(counts), 6, 17, 14), regions(counts, 1)
    expected, actual = both('SimpleRoIAlign', lambda: layer(features, rois))
    assert actual.shape == expected.shape
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-4)
    traced = traced_once('SimpleRoIAlign', layer, (torch.randn(2, 6, 9, 9), regions((2, 3), 2)))
    assert torch.equal(traced(features, rois), actual)
