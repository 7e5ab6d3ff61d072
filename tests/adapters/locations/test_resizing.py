"""Check the resize of masks against torch's, in the two steps of mmdet."""
from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from mmexport.adapters.locations.resizing import enlarged


@pytest.mark.parametrize('stride', [2, 4])
@pytest.mark.parametrize(('cells', 'size'), [((5, 7), (20, 28)), ((5, 7), (18, 25)), ((5, 7), (21, 31)), ((1, 1), (3, 9)),
                                             ((6, 3), (9, 13))])
def test_it_is_torchs_in_two_steps(cells: tuple[int, int], size: tuple[int, int], stride: int) -> None:
    masks = torch.rand(2, 3, *cells)
    whole = F.interpolate(masks, size=[side * stride for side in cells], mode='bilinear')[..., :size[0], :size[1]]
    expected = F.interpolate(whole, size=size, mode='bilinear')
    actual = enlarged(enlarged(masks, 2, size[0], stride), 3, size[1], stride)
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-5)
