"""Check what is refused before a file runs, and in which words."""
from __future__ import annotations

from typing import Any

import pytest
import torch

from mmexport.checker.admission import why_refused as why_inputs_refused

SPEC: dict[str, Any] = dict(axes=['batch', 'channel', 'height', 'width'], traced=[1, 3, 96, 128], dynamic=['batch', 'height', 'width'],
                            ranges=dict(batch=[1, 9], height=[64, 256], width=[64, 256]), multiple_of=32, minimum=64,
                            conditions=['Ne(height, 160)', 'width <= 2*height'])


def why_refused(spec: dict[str, Any], image: torch.Tensor) -> str | None:
    return why_inputs_refused([spec], [image])


@pytest.mark.parametrize(('shape', 'words'), [
    ((1, 3, 96, 128), None), ((9, 3, 256, 256), None), ((1, 3, 64, 64), None),
    ((1, 3, 32, 128), 'height and width must be at least 64, which is what the model takes'),
    ((1, 3, 96, 32), 'height and width must be at least 64, which is what the model takes'),
    ((1, 3, 96), '3 axes, and 4 were expected (batch, channel, height, width)'),
    ((1, 4, 96, 128), 'channel is 4, and this file takes 3 only'),
    ((1, 3, 288, 128), 'height is 288, and this file was checked from 64 to 256 only'),
    ((10, 3, 96, 128), 'batch is 10, and this file was checked from 1 to 9 only'),
    ((1, 3, 100, 128), 'height and width must be multiples of 32'), ((1, 3, 96, 100), 'height and width must be multiples of 32'),
    ((1, 3, 160, 128), 'the file was lowered for other sizes: Ne(height, 160) does not hold'),
    ((1, 3, 64, 160), 'the file was lowered for other sizes: width <= 2*height does not hold')])
def test_undeclared_input_is_refused_with_reason(shape: tuple[int, ...], words: str | None) -> None:
    assert why_refused(SPEC, torch.zeros(shape)) == words


def test_manifest_without_rules_accepts_any_input() -> None:
    assert why_refused({}, torch.zeros(2)) is None
    assert why_refused(dict(axes=['batch', 'height']), torch.zeros(1, 1)) is None
    assert why_refused(dict(axes=['batch', 'channel', 'height', 'width']), torch.zeros(0, 3, 1, 7)) is None


def test_static_axis_requires_traced_size() -> None:
    spec = dict(axes=['batch', 'height'], traced=[1, 7])
    assert why_refused(spec, torch.zeros(1, 7)) is None
    assert why_refused(spec, torch.zeros(2, 7)) == 'batch is 2, and this file takes 1 only'
    # What was not traced is left to the ranges.
    assert why_refused(dict(axes=['batch', 'height'], traced=[1]), torch.zeros(1, 7)) is None


def test_multiple_of_applies_to_height_and_width_only() -> None:
    assert why_refused(dict(axes=['batch', 'channel'], multiple_of=32, minimum=64), torch.zeros(1, 3)) is None


def test_axes_of_one_name_have_one_size_in_all_inputs() -> None:
    clip: dict[str, Any] = dict(name='clip', axes=['batch', 'time', 'height', 'width'], traced=[1, 2, 96, 128],
                                dynamic=['batch', 'height', 'width'], ranges=SPEC['ranges'])
    specs = [{**SPEC, 'name': 'image'}, clip]
    image = torch.zeros(1, 3, 96, 128)
    assert why_inputs_refused(specs, [image, torch.zeros(1, 2, 96, 128)]) is None
    assert why_inputs_refused(specs, [image, torch.zeros(1, 2, 128, 128)]) == 'height is 96 in image and 128 in clip'
    assert why_inputs_refused(specs, [image, torch.zeros(1, 3, 96, 128)]) == 'clip: time is 3, and this file takes 2 only'
    assert why_inputs_refused(specs, [image]) == '1 inputs, and 2 were expected (image, clip)'
    other = torch.zeros(1, 3, 160, 128), torch.zeros(1, 2, 160, 128)
    assert why_inputs_refused(specs, other) == 'the file was lowered for other sizes: Ne(height, 160) does not hold'
