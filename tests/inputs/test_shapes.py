"""Test shapes of the inputs: the corners of the declared ranges are among them."""
from __future__ import annotations

from typing import Any

import pytest

from mmexport.inputs.shapes import plan_shapes, ranges_of, within_budget
from mmexport.inputs.size_rules import SizeRules, find_size_rules

AXES = ('batch', 'height', 'width')


def section(shapes: Any = None, dynamic: tuple[str, ...] = AXES, batch: int | None = None) -> dict[str, Any]:
    return dict(inputs=dict(dynamic=dynamic), verify=dict(shapes=shapes, batch=batch))


@pytest.mark.parametrize('traced', [(512, 512), (512, 1024), (96, 96), (1024, 512), (250, 333)])
@pytest.mark.parametrize('multiple', [1, 16, 64])
def test_the_corners_of_the_ranges_are_tried(traced: tuple[int, int], multiple: int) -> None:
    traced = (-(-traced[0] // multiple) * multiple, -(-traced[1] // multiple) * multiple)
    plan = plan_shapes((1, 3, *traced), section(), SizeRules(multiple, 64), [(800 // multiple * multiple, 128)])
    sizes = {shape[2:] for shape in plan.shapes.values()} | {(800 // multiple * multiple, 128)}
    limits = ranges_of([(1, 3, *size) for size in sizes], AXES)
    assert {(height, width) for height in limits['height'] for width in limits['width']} <= sizes
    assert all(height % multiple == width % multiple == 0 for height, width in sizes)
    assert any(width > 3 * height for height, width in sizes)
    assert any(height > 3 * width for height, width in sizes)
    assert any(height < traced[0] and width < traced[1] for height, width in sizes) or min(traced) <= 64
    assert any(height > traced[0] and width > traced[1] for height, width in sizes)
    assert max(shape[0] for shape in plan.shapes.values()) == 9


def test_shapes_of_the_user_get_their_corners() -> None:
    plan = plan_shapes((1, 3, 128, 160), section([(161, 97)], batch=3), SizeRules())
    assert [shape[2:] for name, shape in plan.shapes.items() if 'corner' in name] == [(128, 97), (161, 160)]


def test_a_model_of_one_size_is_tried_in_batches_only() -> None:
    plan = plan_shapes((1, 3, 224, 224), section(), SizeRules(fixed=True))
    assert {shape[2:] for shape in plan.shapes.values()} == {(224, 224)}
    assert list(plan.shapes) == ['traced', 'same shape', 'batch 9']


def test_a_large_model_of_one_size_is_tried_in_smaller_batches() -> None:
    plan = plan_shapes((1, 3, 640, 640), section(), SizeRules(fixed=True))
    assert list(plan.shapes) == ['traced', 'same shape', 'batch 4']
    assert list(plan.dropped) == ['batch 9']
    assert 'batch 9' in plan_shapes((1, 3, 640, 640), section(batch=9), SizeRules(fixed=True)).shapes


def test_an_axis_that_is_not_dynamic_keeps_its_size() -> None:
    plan = plan_shapes((1, 3, 512, 512), section(dynamic=('width',)), SizeRules())
    assert {shape[2] for shape in plan.shapes.values()} == {512}
    assert {shape[0] for shape in plan.shapes.values()} == {1}
    assert len({shape[3] for shape in plan.shapes.values()}) > 3


@pytest.mark.parametrize(('multiple', 'smallest'), [(1, 64), (2, 64), (8, 64), (16, 96), (32, 128), (64, 64)])
def test_size_rules_are_found_from_what_eager_takes(multiple: int, smallest: int) -> None:
    def accepts(height: int, width: int) -> str | None:
        return None if not height % multiple and not width % multiple and min(height, width) >= smallest else 'RuntimeError: no'

    rules = find_size_rules(accepts, (512, 1024))
    assert (rules.multiple_of, rules.minimum, rules.fixed) == (multiple, smallest, False)


def test_smallest_side_of_a_model_for_large_pictures() -> None:
    rules = find_size_rules(lambda height, width: None if min(height, width) >= 150 else 'no', (128, 128))
    assert (rules.in_words(), rules.up(128)) == ('sides of at least 160', 160)
    assert SizeRules(32, 128).in_words() == 'multiples of 32, at least 128'


@pytest.mark.parametrize(('smallest', 'multiple'), [(385, 1), (416, 32), (504, 8), (512, 1)])
@pytest.mark.parametrize('traced', [(512, 1024), (1024, 512), (768, 768)])
def test_smallest_side_is_no_larger_than_the_traced_one(smallest: int, multiple: int, traced: tuple[int, int]) -> None:
    """As LRASPP's, whose average over 49 cells needs 385 pixels; 513 was found for a traced side of 512."""
    tried = []

    def accepts(height: int, width: int) -> str | None:
        tried.append((height, width))
        return None if min(height, width) >= smallest and not height % multiple and not width % multiple else 'no'

    rules = find_size_rules(accepts, traced)
    assert rules.takes(*traced)
    assert smallest <= rules.minimum < smallest + 32 + multiple
    assert len(tried) <= 24


def test_one_size_only_is_found() -> None:
    rules = find_size_rules(lambda height, width: None if (height, width) == (224, 224) else 'no', (224, 224))
    assert rules.fixed
    assert rules.reason == 'no'


def test_the_size_of_a_photograph_is_limited() -> None:
    assert within_budget((1, 3, 512, 1024), (1024, 2048))
    assert within_budget((1, 3, 512, 512), (800, 1333))
    assert not within_budget((1, 3, 512, 512), (1200, 1600))
