"""Hold the forms of mask statistics against each other, and against the definition."""
from __future__ import annotations

import pytest
import torch

from mmexport.ops.mask_enlarging import enlarge_masks
from mmexport.ops.mask_statistics import mask_statistics
from mmexport.ops.op import with_forms

SIZE = (33, 40)


@pytest.mark.parametrize('form', ['tiles', 'whole'])
@pytest.mark.parametrize('tied', [False, True])
def test_statistics_are_those_of_the_enlarged_masks(form: str, tied: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    masks, weights = torch.randn(2, 23, 8, 9, generator=generator) * 4, torch.rand(2, 23, generator=generator)
    if tied:  # Of equal products the first query wins. Masks of one value are enlarged to the same numbers, wherever they lie in memory.
        masks[:, 5], masks[:, 17], weights[:, 5], weights[:, 17] = 16.0, 16.0, 1.0, 1.0
    masks[0, 3] = -1.0
    query, thing = torch.randint(0, 23, (2, 7), generator=generator), torch.rand(2, 7, generator=generator) > 0.3
    with with_forms(mask_statistics=form):
        actual = mask_statistics(masks, SIZE, weights, True)
        chosen = actual.masks_of(query, thing)
    large = enlarge_masks(masks, SIZE)
    probabilities = large.sigmoid()
    winner = (weights[:, :, None, None] * probabilities).argmax(dim=1)
    assert torch.equal(actual.winner, winner)
    assert not tied or (actual.winner == 5).all()
    assert torch.equal(actual.sure, probabilities.gather(1, winner[:, None])[:, 0] >= 0.5)
    assert torch.equal(actual.area, (probabilities >= 0.5).float().sum(dim=(2, 3)))
    positive = (large > 0).float()
    torch.testing.assert_close(actual.inside, (probabilities * positive).sum(dim=(2, 3)) / (positive.sum(dim=(2, 3)) + 1e-6))
    assert actual.columns is not None and actual.rows is not None
    assert torch.equal(actual.columns, (large > 0).any(dim=2)) and torch.equal(actual.rows, (large > 0).any(dim=3))
    expected = torch.stack([(large > 0)[image, query[image]] & thing[image][:, None, None] for image in range(2)])
    assert torch.equal(chosen, expected)
    assert thing.any() and not thing.all()


@pytest.mark.parametrize('form', ['tiles', 'whole'])
def test_without_masks_there_are_none(form: str) -> None:
    masks = torch.randn(1, 12, 4, 4, generator=torch.Generator().manual_seed(0))
    with with_forms(mask_statistics=form):
        actual = mask_statistics(masks, SIZE, torch.ones(1, 12), False)
    assert actual.positive is None and actual.columns is None and actual.logits is None
