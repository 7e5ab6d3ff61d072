"""Test that a condition keeps its key however often its code ran, and whether or not a profiler watches."""
from __future__ import annotations

from contextlib import nullcontext
from unittest import mock

import torch
from torch import Tensor

from mmexport.branches import recorder


class Scale:
    """Compare sizes inside calls that CPython specialises after a few runs."""

    def __call__(self, image: Tensor) -> Tensor:
        return self.pieces(self.enlarged(image), image.shape)

    def enlarged(self, image: Tensor) -> Tensor:
        return image * 2 if image.shape[2] > 20 else image

    def pieces(self, image: Tensor, shape: torch.Size) -> Tensor:
        for number, row in enumerate(image):
            image = image + number * row if shape[3] > 10 else image
        return image


def test_key_of_a_condition_stays_the_same() -> None:
    scale, image = Scale(), torch.zeros(2, 3, 24, 32)
    actual = []
    for watched in [True, False] * 10:
        with nullcontext() if watched else mock.patch.object(recorder, 'size_products_noted', nullcontext):
            actual.append(set(recorder.record_picture(scale, image).conditions))
    assert len(actual[0]) >= 3
    assert all(keys == actual[0] for keys in actual)


class Values:
    """Ask for a value twice in one place, and once by ``item``."""

    def __call__(self, image: Tensor) -> Tensor:
        for part in (image[:, :1], image[:, 1:]):
            if part.mean() < -1:
                image = image + 1
        return image * 2 if image.max().item() > 3 else image


def test_a_run_without_values_answers_as_the_picture_did() -> None:
    values, image = Values(), torch.cat([torch.full((1, 1, 8, 8), -2.0), torch.zeros(1, 2, 8, 8)], dim=1)
    real = recorder.record_picture(values, image)
    hollow = recorder.record_sizes(values, (1, 3, 16, 16), {**real.answers, **real.conditions})
    assert not hollow.error
    assert [answer for answer, _ in real.conditions.values()] == [True, False, False]
    assert {key: answer for key, (answer, _) in hollow.conditions.items()} == {key: answer for key, (answer, _) in real.conditions.items()}


def test_a_run_without_values_asks_under_the_same_keys() -> None:
    scale = Scale()
    for _ in range(10):
        real = recorder.record_picture(scale, torch.zeros(2, 3, 24, 32))
        hollow = recorder.record_sizes(scale, (2, 3, 24, 32), {})
        assert set(hollow.conditions) == set(real.conditions)
