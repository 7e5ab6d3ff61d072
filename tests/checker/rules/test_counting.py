from __future__ import annotations

import math

import pytest
import torch

from mmexport.checker.rules.counting import pairs_of, share


@pytest.mark.parametrize('true', [0, 1, 6, 12])
def test_share_equals_the_mean(true: int) -> None:
    mask = torch.arange(12).reshape(1, 3, 4) < true
    assert share(mask) == pytest.approx(float(mask.double().mean()), abs=1e-15)


def test_share_of_nothing_is_no_number() -> None:
    assert math.isnan(share(torch.zeros(0, 3, dtype=torch.bool)))


@pytest.mark.parametrize('shift', [0, -5, 2 ** 62])
def test_pairs_equal_those_of_unique_columns(shift: int) -> None:
    generator = torch.Generator().manual_seed(0)
    one, other = (torch.randint(0, 9, (2, 7, 11), generator=generator) * 1000 for _ in range(2))
    other = other + shift
    columns, counts = torch.stack([one.flatten(), other.flatten()]).unique(dim=1, return_counts=True)
    pairs, actual = pairs_of(one, other)
    assert torch.equal(pairs, columns)
    assert torch.equal(actual, counts)


def test_pairs_of_empty_maps_are_none() -> None:
    pairs, counts = pairs_of(torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long))
    assert pairs.shape == (2, 0)
    assert counts.shape == (0,)
