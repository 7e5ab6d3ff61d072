"""Test which sizes a program is exported with, so that it holds for all that were checked."""
from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mmexport.adapters.guard import InputGuard
from mmexport.backends.examples import generic, largest_checked
from mmexport.backends.exported import program, valid_sizes

AXES = ('batch', 'height', 'width')


@pytest.mark.parametrize(('high', 'multiple', 'sizes'), [((640, 1280), 1, (2, 640, 1280)), ((640, 640), 1, (2, 640, 576)),
                                                         ((224, 224), 14, (2, 224, 154)), ((640, 600), 1, (2, 640, 536))])
def test_the_largest_example_differs_at_every_stride(high: tuple[int, int], multiple: int, sizes: tuple[int, ...]) -> None:
    ranges = dict(batch=(1, 9), height=(64, high[0]), width=(64, high[1]))
    actual = largest_checked(torch.zeros(1, 3, 128, 128), AXES, ranges, multiple)
    assert actual is not None
    assert (actual.shape[0], *actual.shape[2:]) == sizes
    assert not actual.shape[2] % multiple and not actual.shape[3] % multiple


def test_there_is_none_where_the_ranges_are_narrow() -> None:
    for width in (100, 128):
        assert largest_checked(torch.zeros(1, 3, 96, 96), AXES, dict(height=(64, 100), width=(64, width)), 1) is None


class Limited(nn.Module):
    """Brighten pictures of more than 300 rows."""

    def __init__(self, high: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.guard = InputGuard((1, 3, 128, 128), AXES, ranges=dict(batch=(1, 9), height=(64, high), width=(64, 256)))

    def forward(self, image: Tensor) -> Tensor:
        return self.scale * (image * 2 if image.shape[2] > 300 else image)


def test_a_branch_outside_of_the_ranges_goes_as_within() -> None:
    """The generic example has 480 rows; the file is for at most 256."""
    model = Limited(256).eval()
    actual = program.exported_program(model, torch.zeros(1, 3, 128, 128), AXES)  # type: ignore[arg-type]
    for size in [(1, 3, 64, 64), (9, 3, 256, 256), (1, 3, 64, 256)]:
        image = torch.randn(size)
        torch.testing.assert_close(actual.module()(image), model(image))


def test_a_branch_within_the_ranges_stays_refused() -> None:
    model = Limited(400).eval()
    example = torch.zeros(1, 3, 128, 128)
    actual = program.exported_program(model, example, AXES)  # type: ignore[arg-type]
    assert valid_sizes.refused_corner(actual, generic(example, AXES), AXES, model.guard.ranges) is not None


class Asking(Limited):
    """Refuse what the generic example has, and divide by a size that may be zero."""

    def forward(self, image: Tensor) -> Tensor:
        if image.shape[2] * image.shape[3] > 300000 or 500 // (image.shape[2] // 128) == 3:
            raise ValueError('too large')
        return self.scale * image


def test_a_second_export_that_fails_does_not_cost_the_first() -> None:
    model = Asking(600).eval()
    model.guard.ranges['width'] = (64, 640)
    actual = program.exported_program(model, torch.zeros(1, 3, 128, 128), AXES)  # type: ignore[arg-type]
    image = torch.randn(1, 3, 256, 300)
    torch.testing.assert_close(actual.module()(image), model(image))
