"""Hold the forms of a resize against torch's operator."""
from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from mmexport.ops.mask_enlarging import enlarge_masks
from mmexport.ops.mask_statistics import mask_statistics
from mmexport.ops.op import with_forms


@pytest.mark.parametrize('size', [(7, 5), (28, 20), (29, 33), (64, 3), (1, 1)])
def test_matrix_form_equals_operator(size: tuple[int, int]) -> None:
    masks = torch.randn(2, 4, 7, 5, generator=torch.Generator().manual_seed(0)) * 8
    expected = F.interpolate(masks, size=size, mode='bilinear', align_corners=False)
    assert torch.equal(enlarge_masks(masks, size), expected)
    with with_forms(mask_enlarging='matrix'):
        actual = enlarge_masks(masks, size)
    # Two roundings of float32 more than the operator has.
    assert (actual - expected).abs().max() <= 1e-6 * masks.abs().max()


def test_matrix_form_decides_as_the_operator_does() -> None:
    generator = torch.Generator().manual_seed(1)
    masks, scores = torch.randn(2, 12, 8, 9, generator=generator) * 4, torch.rand(2, 12, generator=generator)
    expected = mask_statistics(masks, (33, 40), scores, True)
    with with_forms(mask_enlarging='matrix'):
        actual = mask_statistics(masks, (33, 40), scores, True)
    assert expected.positive is not None and actual.positive is not None
    assert len(expected.winner.unique()) > 5
    # A pixel whose value is zero but for rounding may fall on the other side.
    assert (actual.winner != expected.winner).sum() <= 2
    assert (actual.positive != expected.positive).sum() <= 2
