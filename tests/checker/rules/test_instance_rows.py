"""Check the matching of instances."""
from __future__ import annotations

from typing import Any

import pytest
import torch

from mmexport.checker.compare import compare
from mmexport.checker.rules.instance_rows import compare_instances
from tests.checker.made import INSTANCE, instances, judge_rows


def test_instance_order_does_not_matter() -> None:
    assert judge_rows('nothing').passed
    assert judge_rows('order').passed
    for change in ('mask', 'score', 'label', 'row', 'box'):
        assert not judge_rows(change).passed, change
    edge = torch.tensor([[False, False, True, False]])
    assert judge_rows('row', edge_rows=edge).passed
    near = torch.zeros(1, 4, 8, 8, dtype=torch.bool)
    near[0, 0, 7, 7] = True
    assert judge_rows('mask', mask_near=near).passed
    # What eager is unsure of everywhere is no comparison.
    assert not judge_rows('row', edge_rows=torch.ones(1, 4, dtype=torch.bool)).passed
    assert not judge_rows('mask', mask_near=torch.ones_like(near)).passed


def test_unused_rows_are_zero_and_no_rows_fail() -> None:
    wrong = {name: tensor.clone() for name, tensor in instances().items()}
    wrong['scores'][0, 3] = 0.5
    assert 'not zero' in str(compare(INSTANCE, instances(), list(wrong.values()), {}, sample='s', stage='t')[0].reason)
    none = {name: torch.zeros_like(tensor) for name, tensor in instances().items()}
    edge = torch.ones(1, 4, dtype=torch.bool)
    assert not compare(INSTANCE, instances(), list(none.values()), {'edge_rows': edge}, sample='s', stage='t')[0].passed


def rows_of(boxes: list[tuple[int, int, int, int]], labels: list[int], scores: list[float], rows: int = 6) -> dict[str, torch.Tensor]:
    """Make rows of one picture of 8x8, each mask a filled box."""
    count = len(boxes)
    result = dict(boxes=torch.zeros(1, rows, 4), scores=torch.zeros(1, rows), labels=torch.zeros(1, rows, dtype=torch.int64),
                 masks=torch.zeros(1, rows, 8, 8, dtype=torch.bool), num=torch.tensor([count]))
    for row, (x1, y1, x2, y2) in enumerate(boxes):
        result['masks'][0, row, y1:y2, x1:x2] = True
        result['boxes'][0, row] = torch.tensor([x1, y1, x2, y2])
    result['labels'][0, :count], result['scores'][0, :count] = torch.tensor(labels), torch.tensor(scores)
    return result


THREE = [(0, 0, 4, 4), (4, 0, 8, 4), (0, 4, 8, 8)]


def compared(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor] | None = None, **evidence: torch.Tensor) -> dict[str, Any]:
    return compare_instances(expected or rows_of(THREE, [1, 1, 2], [0.8, 0.6, 0.5]), actual, evidence, 1e-3)


def test_equal_instances_have_zero_errors() -> None:
    assert compared(rows_of(THREE, [1, 1, 2], [0.8, 0.6, 0.5])) == dict(max_abs=0.0, max_rel=0.0, beyond=0.0, lost=0.0, metrics=dict(
        rows=3, rows_lost=0, rows_wrong=0, masks_clearly_different=0, score_error=0.0, best_score=pytest.approx(0.8), box_error=0.0,
        mask_iou=1.0))


def test_instance_errors_are_counted_by_row() -> None:
    moved = rows_of([(0, 0, 4, 3), (4, 0, 8, 4), (0, 4, 8, 8)], [1, 1, 2], [0.8, 0.604, 0.5])
    result = compared(moved)
    assert result['metrics'] == dict(
        rows=3, rows_lost=0, rows_wrong=2, masks_clearly_different=1, score_error=pytest.approx(0.004, abs=1e-6),
        best_score=pytest.approx(0.8), box_error=0.0, mask_iou=pytest.approx((0.75 + 2) / 3))
    assert (result['beyond'], result['lost']) == (pytest.approx(2 / 3), 0.0)
    assert (result['max_abs'], result['max_rel']) == (pytest.approx(0.004, abs=1e-6), pytest.approx(0.005, rel=1e-3))


def test_score_tolerance_is_relative_to_best_score() -> None:
    for off, wrong in ((0.7e-3, 0), (0.9e-3, 1)):
        result = compared(rows_of(THREE, [1, 1, 2], [0.8, 0.6, 0.5 + off]))
        assert result['metrics']['rows_wrong'] == wrong


def test_box_must_match_its_mask() -> None:
    shifted = rows_of(THREE, [1, 1, 2], [0.8, 0.6, 0.5])
    shifted['boxes'][0, 2, 1] -= 3
    result = compared(shifted)
    assert (result['metrics']['box_error'], result['metrics']['rows_wrong'], result['beyond']) == (3.0, 1, pytest.approx(1 / 3))
    # A mask that lost its last row within its unsure pixels has the box of what is left.
    near = torch.zeros(1, 6, 8, 8)
    near[0, 0, 3] = 1
    smaller = rows_of([(0, 0, 4, 3), *THREE[1:]], [1, 1, 2], [0.8, 0.6, 0.5])
    assert compared(smaller, mask_near=near)['beyond'] == 0
    smaller['boxes'][0, 0, 3] = 4
    assert compared(smaller, mask_near=near)['metrics']['box_error'] == 1.0
    empty = rows_of([(0, 0, 0, 0), *THREE[1:]], [1, 1, 2], [0.8, 0.6, 0.5])
    assert compared(empty, expected=empty)['beyond'] == 0


def test_matching_uses_label_iou_and_score() -> None:
    order = rows_of([THREE[2], THREE[1], THREE[0]], [2, 1, 1], [0.5, 0.6, 0.8])
    assert compared(order)['beyond'] == 0
    # Two rows of one mask and label are told apart by their scores, whatever their order.
    twice = rows_of([(0, 0, 4, 4), (0, 0, 4, 4), (4, 4, 8, 8)], [1, 1, 1], [0.9, 0.3, 0.2])
    turned = rows_of([(4, 4, 8, 8), (0, 0, 4, 4), (0, 0, 4, 4)], [1, 1, 1], [0.2, 0.3, 0.9])
    assert compared(turned, expected=twice)['metrics']['score_error'] == 0
    # Each row answers once: of two expected rows, one is lost where there is one answer.
    once = rows_of([(0, 0, 4, 4), (4, 4, 8, 8)], [1, 1], [0.9, 0.2])
    assert compared(once, expected=twice)['metrics']['rows_lost'] == 1


def test_match_needs_iou_above_one_half() -> None:
    half = rows_of([(0, 0, 4, 2), *THREE[1:]], [1, 1, 2], [0.8, 0.6, 0.5])
    result = compared(half)
    assert (result['metrics']['rows_lost'], result['lost'], result['beyond']) == (2, pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert compared(rows_of([(0, 0, 4, 3), *THREE[1:]], [1, 1, 2], [0.8, 0.6, 0.5]))['metrics']['rows_lost'] == 0
    other = compared(rows_of(THREE, [1, 1, 3], [0.8, 0.6, 0.5]))
    assert other['metrics']['rows_lost'] == 2


def test_edge_rows_may_be_lost_or_new() -> None:
    edge = torch.tensor([[False, False, True]])
    assert compared(rows_of(THREE[:2], [1, 1], [0.8, 0.6]), edge_rows=edge)['lost'] == 0
    assert compared(rows_of([*THREE, (6, 6, 8, 8)], [1, 1, 2, 3], [0.8, 0.6, 0.5, 0.4]), edge_rows=edge)['lost'] == 0
    two = rows_of([*THREE, (6, 6, 8, 8), (6, 6, 7, 8)], [1, 1, 2, 3, 4], [0.8, 0.6, 0.5, 0.4, 0.4])
    assert compared(two, edge_rows=edge)['metrics']['rows_lost'] == 1
    assert compared(two)['metrics']['rows_lost'] == 2
    # Evidence of rows beyond num is of rows that do not count.
    assert compared(rows_of(THREE[:2], [1, 1], [0.8, 0.6]), edge_rows=torch.tensor([[False] * 3 + [True] * 3]))['lost'] > 0


def test_at_most_half_of_the_rows_may_be_unsure() -> None:
    four = rows_of([*THREE, (6, 6, 8, 8)], [1, 1, 2, 3], [0.8, 0.6, 0.5, 0.4])
    assert 'problem' not in compared(four, expected=four, edge_rows=torch.tensor([[False, False, True, True]]))
    result = compared(four, expected=four, edge_rows=torch.tensor([[False, True, True, True]]))
    assert result['problem'] == 'eager is unsure of 3 of 4 rows and 0% of the mask pixels: too few are left to compare'
    assert result['metrics']['rows'] == 4
    near = torch.zeros(1, 6, 8, 8)
    near[0, :2] = 1
    assert 'problem' not in compared(four, expected=four, mask_near=near)
    near[0, 2, 0] = 1
    result = compared(four, expected=four, mask_near=near)
    assert result['problem'] == 'eager is unsure of 0 of 4 rows and 53% of the mask pixels: too few are left to compare'


def test_images_of_a_batch_are_matched_separately() -> None:
    def batch(*pictures: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: torch.cat([picture[name] for picture in pictures]) for name in pictures[0]}

    one, other = rows_of(THREE, [1, 1, 2], [0.8, 0.6, 0.5]), rows_of(THREE[:1], [4], [0.9])
    assert compared(batch(one, other), expected=batch(one, other))['metrics']['rows'] == 4
    swapped = compared(batch(other, one), expected=batch(one, other))
    assert swapped['problem'] == 'none of 4 instances was found again: nothing was compared'
    assert swapped['metrics']['rows_lost'] == 3 + 1 + 1 + 3
    assert swapped['metrics']['mask_iou'] == 0.0
    none = rows_of([], [], [])
    # That a picture shows nothing is an answer, which another file may miss; that no picture shows anything is not compared, see `vacuous`.
    assert compared(none, expected=none)['beyond'] == 0 and compared(other, expected=none)['beyond'] == 1
    assert compared(none, expected=none)['metrics']['rows_lost'] == 0


@pytest.mark.parametrize('name', ['boxes', 'scores', 'labels', 'masks'])
def test_rows_after_num_must_be_zero(name: str) -> None:
    dirty = rows_of(THREE, [1, 1, 2], [0.8, 0.6, 0.5])
    dirty[name][0, 3:4] = 1
    result = compared(dirty)
    assert result['problem'] == 'rows from num on are not zero'
    assert result['metrics']['rows'] == 3


EMPTY, PIXEL = (0, 0, 0, 0), (7, 7, 8, 8)


def test_empty_and_single_pixel_masks_match_in_any_order() -> None:
    for box in (EMPTY, PIXEL):
        result = compared(rows_of([THREE[0], box], [3, 3], [0.8, 0.6]), rows_of([box, THREE[0]], [3, 3], [0.6, 0.8]))
        assert (result['lost'], result['beyond']) == (0.0, 0.0)
    # A pixel is not an empty mask.
    result = compared(rows_of([THREE[0], EMPTY], [3, 3], [0.8, 0.6]), rows_of([PIXEL, THREE[0]], [3, 3], [0.6, 0.8]))
    assert result['metrics']['rows_lost'] == 2


def test_overlaps_of_two_candidates_are_not_added() -> None:
    expected = rows_of([(0, 0, 4, 2), THREE[2]], [1, 2], [0.8, 0.5])
    actual = rows_of([THREE[2], (0, 0, 2, 3), (2, 0, 4, 3)], [2, 1, 1], [0.5, 0.8, 0.8])
    assert compared(actual, expected)['metrics']['rows_lost'] == 3


def test_each_actual_row_is_matched_once() -> None:
    expected = rows_of([THREE[0], THREE[0], THREE[2]], [1, 1, 2], [0.8, 0.8, 0.5])
    actual = rows_of([THREE[2], THREE[0], THREE[2]], [1, 1, 2], [0.8, 0.8, 0.5])
    assert compared(actual, expected)['metrics']['rows_lost'] == 2


def test_shares_of_rows_end_at_one() -> None:
    expected = rows_of(THREE[:1], [1], [0.8])
    actual = rows_of([THREE[0], *[(0, row, 8, row + 1) for row in range(4, 8)]], [1] * 5, [0.1, 0.5, 0.5, 0.5, 0.5])
    result = compared(actual, expected)
    assert result['metrics']['rows_lost'] == 4
    assert (result['beyond'], result['lost']) == (1.0, 1.0)


def test_unsure_rows_are_counted_over_all_images() -> None:
    one = rows_of(THREE[:1], [1], [0.8])
    assert 'unsure of 1 of 1 rows' in compared(one, one, edge_rows=torch.ones(1, 6, dtype=torch.bool))['problem']
    two = {name: torch.cat([value, value]) for name, value in rows_of(THREE[:2], [1, 1], [0.8, 0.6]).items()}
    edge = torch.tensor([[True, True, False, False, False, False], [True, False, False, False, False, False]])
    assert 'unsure of 3 of 4 rows' in compared(two, two, edge_rows=edge)['problem']


def test_score_error_of_the_tolerance_itself_is_allowed() -> None:
    step = 2.0 ** -10
    expected, actual = (rows_of(THREE[:2], [1, 1], [1.0, score]) for score in (0.5, 0.5 + step))
    assert compare_instances(expected, actual, {}, step)['metrics']['rows_wrong'] == 0
    assert compare_instances(expected, actual, {}, 0.99 * step)['metrics']['rows_wrong'] == 1


def test_rows_of_one_mask_are_told_apart_by_their_scores() -> None:
    """The best of four may go: the others stand one place earlier, with the same mask."""
    box = [(0, 0, 8, 8)]
    expected, edge = rows_of(box * 4, [1] * 4, [0.5, 0.4, 0.3, 0.2]), torch.tensor([[True, False, False, False, False, False]])
    maybe = dict(maybe=torch.full((1, 1, 3), -1.0), maybe_masks=torch.zeros(1, 1, 8, 8, dtype=torch.bool),
                 maybe_near=torch.zeros(1, 1, 8, 8, dtype=torch.bool), least_num=torch.tensor([3]))
    result = compared(rows_of(box * 3, [1] * 3, [0.4, 0.3, 0.2]), expected, edge_rows=edge, **maybe)
    assert result['beyond'] == 0 and result['metrics']['rows_wrong'] == 0


def test_new_rows_are_those_that_eager_might_have_kept() -> None:
    new = rows_of([*THREE, (6, 6, 8, 8), (5, 5, 8, 8)], [1, 1, 2, 3, 3], [0.8, 0.6, 0.5, 0.15, 0.4])
    masks = new['masks'][:, 3:5].clone()
    evidence = dict(maybe=torch.tensor([[[0.1, 0.5, 3.0], [0.1, 0.2, 3.0]]]), maybe_masks=masks.flip(1), maybe_near=torch.zeros_like(masks),
                    least_num=torch.tensor([3]))
    assert compared(new, **evidence)['beyond'] == 0
    for planted in (dict(maybe_masks=masks), dict(maybe=evidence['maybe'] - torch.tensor([0, 0.2, 0])),
                    dict(maybe=evidence['maybe'] + torch.tensor([0, 0, 1.0]))):
        assert compared(new, **{**evidence, **planted})['metrics']['rows_lost'] >= 1
    near = torch.ones_like(masks)
    assert compared(new, **{**evidence, 'maybe_masks': masks, 'maybe_near': near})['beyond'] == 0


def test_rows_at_a_cut_cannot_all_go() -> None:
    edge = torch.tensor([[False, True, True, False, False, False]])
    maybe = dict(maybe=torch.full((1, 1, 3), -1.0), maybe_masks=torch.zeros(1, 1, 8, 8, dtype=torch.bool),
                 maybe_near=torch.zeros(1, 1, 8, 8, dtype=torch.bool), least_num=torch.tensor([2]))
    expected = rows_of([*THREE, (6, 6, 8, 8)], [1, 1, 2, 3], [0.8, 0.6, 0.5, 0.4])
    kept = rows_of([THREE[0], THREE[1], (6, 6, 8, 8)], [1, 1, 3], [0.8, 0.6, 0.4])
    assert compared(kept, expected, edge_rows=edge, **maybe)['beyond'] == 0
    fewer = rows_of([THREE[0], (6, 6, 8, 8)], [1, 3], [0.8, 0.4])
    assert compared(fewer, expected, edge_rows=edge, **maybe)['beyond'] == 0
    assert compared(fewer, expected, edge_rows=edge, **{**maybe, 'least_num': torch.tensor([3])})['metrics']['rows_lost'] == 1


@pytest.mark.parametrize('count', [-1, 7])
def test_a_number_of_rows_that_cannot_be(count: int) -> None:
    three = rows_of(THREE, [1, 1, 2], [0.8, 0.6, 0.5])
    assert compared({**three, 'num': torch.tensor([count])})['problem'] == f'num is {count}, and there are 6 rows'
