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


@pytest.mark.parametrize('size', [(18, 25), (21, 31), (22, 28)])
def test_pictures_with_padding_are_cut_where_they_end(size: tuple[int, int]) -> None:
    masks = torch.rand(3, 4, 5, 7)
    sizes = torch.tensor([size, (15, 20), (21, 24)]).minimum(torch.tensor(size))
    actual = enlarged(enlarged(masks, 2, size[0], 4, sizes[:, 0]), 3, size[1], 4, sizes[:, 1])
    assert actual.shape == (3, 4, *size)
    for picture, (height, width), found in zip(masks, sizes.tolist(), actual, strict=True):
        cut = F.interpolate(picture[None], size=(20, 28), mode='bilinear')[..., :height, :width]
        expected = F.interpolate(cut, size=(height, width), mode='bilinear')[0]
        torch.testing.assert_close(found[..., :height, :width], expected, atol=1e-6, rtol=1e-5)
