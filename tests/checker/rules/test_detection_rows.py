"""Test detections: each planted fault fails, and what rounding may do to close calls passes."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from mmexport.checker.compare import compare, lost_key, rounding_key
from mmexport.checker.comparison import EAGER, Comparison
from mmexport.checker.kinds import detections, dets
from mmexport.checker.one_sample import IN_ORDER
from mmexport.checker.rules.detection_rows import compare_detections

Outputs = dict[str, Tensor]


def found(seed: int = 0, count: int = 30, rows: int = 40) -> Outputs:
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(1, rows, 2, generator=generator) * 300
    boxes = torch.cat([corner, corner + 20 + torch.rand(1, rows, 2, generator=generator) * 60], dim=2)
    scores = torch.rand(1, rows, generator=generator).sort(dim=1, descending=True).values
    there = torch.arange(rows) < count
    return dict(boxes=boxes * there[:, None], scores=scores * there, labels=torch.randint(0, 5, (1, rows), generator=generator) * there,
                num=torch.tensor([count]))


def changed(name: str, change: Callable[[Tensor], Tensor]) -> Outputs:
    outputs = {key: value.clone() for key, value in found().items()}
    outputs[name][:, :30] = change(outputs[name][:, :30])
    return outputs


def dropped(row: int) -> Outputs:
    outputs = found()
    keep = [number for number in range(40) if number != row]
    return {**{name: torch.cat([outputs[name][:, keep], torch.zeros_like(outputs[name][:, :1])], dim=1)
               for name in ('boxes', 'scores', 'labels')}, 'num': outputs['num'] - 1}


def beyond(actual: Outputs, **evidence: Tensor) -> float:
    result = compare_detections(found(), actual, evidence, 1e-4)
    assert 'problem' not in result, result
    return float(result['beyond'])


FAULTS: dict[str, Outputs] = {
    'one box dropped': dropped(7),
    'labels shifted by one': changed('labels', lambda labels: (labels + 1) % 5),
    'boxes 2 px off': changed('boxes', lambda boxes: boxes + 2),
    'one box off': changed('boxes', lambda boxes: boxes + 0.5 * (torch.arange(30) == 11)[:, None]),
    'scores off': changed('scores', lambda scores: scores * 0.999),
    'another picture': found(1),
    'a box more': {**found(), **{name: torch.where((torch.arange(40) == 30).view(1, 40, *[1] * (value.dim() - 2)),
                                                   found(2)[name][:, 29:30], value)
                                 for name, value in found().items() if name != 'num'}, 'num': torch.tensor([31])},
}


def test_a_box_larger_than_the_picture_excuses_itself_alone() -> None:
    """YOLOX clips none, and one was 60,000 px wide: others could be 0.4 px off."""
    huge = torch.tensor([-3e4, -3e4, 3e4, 3e4])
    expected = changed('boxes', lambda boxes: torch.cat([huge.expand(1, 1, 4), boxes[:, 1:]], dim=1))
    for row, off, right in ((0, 2.0, True), (0, 4.0, False), (5, 0.02, True), (5, 0.4, False)):
        actual = {**expected, 'boxes': expected['boxes'].clone()}
        actual['boxes'][0, row] += off
        assert (compare_detections(expected, actual, {}, 1e-4)['beyond'] == 0) == right, (row, off)


@pytest.mark.parametrize('fault', FAULTS)
def test_each_fault_fails(fault: str) -> None:
    assert beyond(FAULTS[fault]) > 0


def ordered(order: Tensor, outputs: Outputs | None = None) -> Outputs:
    """Give the first 30 rows another order."""
    order = torch.cat([order, torch.arange(30, 40)])
    return {name: value[:, order] if name != 'num' else value for name, value in (outputs or found()).items()}


SHUFFLED = torch.randperm(30, generator=torch.Generator().manual_seed(3))


def test_rows_pass_in_any_order_where_eager_has_none() -> None:
    assert compare_detections(ordered(SHUFFLED), found(), IN_ORDER, 1e-4)['beyond'] == 0
    assert beyond(changed('boxes', lambda boxes: boxes * (1 + 1e-6))) == 0


def test_rows_keep_the_order_of_scores_that_eager_gives() -> None:
    result = compare_detections(found(), ordered(torch.arange(30).flip(0)), IN_ORDER, 1e-4)
    assert result['problem'] == 'rows 0 and 1 are not in the order of their scores, and eager gives the best first'
    assert 'problem' in compare_detections(found(), ordered(SHUFFLED), IN_ORDER, 1e-4)
    assert compare_detections(found(), ordered(SHUFFLED), {}, 1e-4)['beyond'] == 0
    # Rounding may exchange two rows whose scores are close.
    close = found()
    close['scores'][0, 5] = close['scores'][0, 4] - 1e-5
    other = ordered(torch.tensor([*range(4), 5, 4, *range(6, 30)]), close)
    assert compare_detections(close, other, IN_ORDER, 1e-4)['beyond'] == 0


def test_a_score_may_be_off_by_what_its_logit_may() -> None:
    """A probability of a half moves by a quarter of its logit, one of nearly 1 hardly."""
    slack = torch.full((1, 40), 1e-3)
    assert beyond(FAULTS['scores off'], row_slack=slack) == 0
    assert beyond(FAULTS['scores off'], row_slack=slack / 100) > 0


@pytest.mark.parametrize(('fault', 'rounding', 'passes'), [
    ('a little off', 1.2e-4, True), ('a little off', 0.0, False), ('a little off', 0.7e-4, False), ('boxes 2 px off', 1.0, False),
    ('labels shifted by one', 1.2e-4, False), ('one box dropped', 1.2e-4, False), ('a box more', 1.2e-4, False)])
def test_rows_may_be_off_by_twice_what_rounding_changes(fault: str, rounding: float, passes: bool) -> None:
    """A box is off by twice the tolerance, a score by twice what its logit's tolerance does to it."""
    little = changed('boxes', lambda boxes: boxes + 2e-4 * boxes.max())
    little['scores'] = little['scores'] - 2e-3 * (little['scores'] > 0)
    actual, slack = {**FAULTS, 'a little off': little}[fault], torch.full((1, 40), 1e-3)
    specs = [dict(name=name, kind='detections') for name in found()]
    row, = compare(specs, found(), [*actual.values()], dict(row_slack=slack), sample='s', stage='t',
                   floors={rounding_key('detections'): rounding, lost_key('detections'): 0.0})
    assert row.passed is passes, row.reason
    # What it is off by is told in the unit of the usual limits.
    assert fault != 'a little off' or float(row.max_rel or 0) == pytest.approx(2e-4, rel=0.1)


def test_only_a_row_of_which_eager_is_unsure_may_be_missing() -> None:
    unsure = torch.zeros(1, 40, dtype=torch.bool)
    unsure[0, 7] = True
    assert beyond(dropped(7), unsure=unsure) == 0
    assert beyond(dropped(8), unsure=unsure) > 0


def test_only_a_row_that_eager_might_have_kept_may_be_new() -> None:
    extra = FAULTS['a box more']
    row = torch.cat([extra['boxes'][0, 30], extra['scores'][0, 30:31], extra['labels'][0, 30:31].float()])
    assert beyond(extra, maybe=row[None, None]) == 0
    assert beyond(extra, maybe=(row + torch.tensor([0, 0, 0, 0, 0.1, 0]))[None, None]) > 0


@pytest.mark.parametrize(('actual', 'evidence', 'words'), [
    ({**found(), 'num': torch.tensor([41])}, {}, 'num is 41, and there are 40 rows'),
    ({**found(), 'num': torch.tensor([29])}, {}, 'rows from num on are not zero'),
    (found(), dict(unsure=torch.ones(1, 40, dtype=torch.bool)), 'eager is unsure of 30 of 30 rows'),
])
def test_what_cannot_be_compared_is_a_problem(actual: Outputs, evidence: dict[str, Any], words: str) -> None:
    assert words in compare_detections(found(), actual, evidence, 1e-4)['problem']


@pytest.mark.parametrize(('actual', 'words'), [
    (changed('boxes', lambda boxes: boxes * (1 + 2e-3)), None),
    (changed('boxes', lambda boxes: boxes * (1 + 2e-2)), 'a box is off by'),
    (changed('scores', lambda scores: scores * 0.8), 'a score is off by'),
    (dropped(7), '96.67% of the detections are found again'),
    (found(count=0), None)])
def test_reduced_precision_has_limits_for_boxes_scores_and_rows(actual: Outputs, words: str | None) -> None:
    result = compare_detections(actual if not int(actual['num']) else found(), actual, {}, 1e-4)
    row = Comparison('traced', 'boxes', EAGER, 'detections', 1e-4, metrics=result['metrics'], precision='float16')
    reason = detections.reduced(row)
    assert reason is None if words is None else words in str(reason)


def test_pictures_without_detections_agree_and_prove_nothing() -> None:
    empty = found(count=0)
    result = compare_detections(empty, empty, {}, 1e-4)
    assert result['beyond'] == 0
    assert detections.little_change('boxes', empty, empty, 5, 1e-4, 1.0) == 'only 0 detections (at least 3 required)'
    assert 'of the boxes change' in str(detections.little_change('boxes', found(), found(), 5, 1e-4, 1.0))
    assert detections.little_change('boxes', found(), found(1), 5, 1e-4, 1.0) is None


def test_an_unsure_row_does_not_match_its_successor() -> None:
    """The box that suppressed it lies over most of it: one row is gone, and one is new, which eager must have thought possible."""
    actual = changed('boxes', lambda boxes: boxes + 3 * (torch.arange(30) == 11)[:, None])
    unsure = torch.zeros(1, 40, dtype=torch.bool)
    unsure[0, 11] = True
    other = torch.cat([actual['boxes'][0, 11], actual['scores'][0, 11:12], actual['labels'][0, 11:12].float()])[None, None]
    assert beyond(actual, unsure=unsure, maybe=other) == 0
    assert beyond(actual, unsure=unsure) > 0
    assert beyond(actual, maybe=other) > 0


def test_slack_of_the_score_of_a_row_eager_might_keep() -> None:
    actual = changed('boxes', lambda boxes: boxes + 3 * (torch.arange(30) == 11)[:, None])
    unsure = torch.zeros(1, 40, dtype=torch.bool)
    unsure[0, 11] = True
    other = torch.cat([actual['boxes'][0, 11], actual['scores'][0, 11:12] + 5e-4, actual['labels'][0, 11:12].float()])[None, None]
    assert beyond(actual, unsure=unsure, maybe=other) > 0
    assert beyond(actual, unsure=unsure, maybe=other, maybe_slack=torch.full((1, 1), 1e-3)) == 0


@pytest.mark.parametrize(('side', 'fails'), [(2.0, True), (3.5, False)])
def test_a_row_that_may_lie_elsewhere_lies_within_its_range(side: float, fails: bool) -> None:
    actual = changed('boxes', lambda boxes: boxes + 3 * (torch.arange(30) == 11)[:, None])
    unsure = torch.zeros(1, 40, dtype=torch.bool)
    unsure[0, 11] = True
    expected = found()
    other = torch.cat([expected['boxes'][0, 11], expected['scores'][0, 11:12], expected['labels'][0, 11:12].float()])[None, None]
    assert (beyond(actual, unsure=unsure, maybe=other, maybe_box_slack=torch.full((1, 1, 4), side)) > 0) is fails


@pytest.mark.parametrize(('off', 'slack', 'fails'), [(0.0, 0.0, False), (1e-2, 0.0, True), (1e-2, 2e-2, False), (3e-2, 2e-2, True)])
def test_a_mask_may_be_off_by_what_its_box_may(off: float, slack: float, fails: bool) -> None:
    there = (torch.arange(40) < 30)[:, None, None]
    masks = torch.randn(1, 40, 7, 7, generator=torch.Generator().manual_seed(0)) * there
    expected, actual = {**found(), 'masks': masks}, {**found(), 'masks': masks + off * there}
    evidence = {'mask_slack': torch.full((1, 40), slack)}
    assert (compare_detections(expected, actual, evidence, 1e-4)['beyond'] > 0) is fails
    few = (torch.arange(40) < 12)[:, None, None]
    wrong = {**actual, 'masks': masks + 5 * few}
    assert compare_detections(expected, wrong, {'mask_unsure': few[None, :, 0, 0]}, 1e-4)['beyond'] == 0
    all_of_them = compare_detections(expected, wrong, {'mask_unsure': there[None, :, 0, 0]}, 1e-4)
    assert all_of_them['problem'] == 'eager is unsure of 100% of the masks: too few are left to compare'


def test_masks_of_other_rows_and_masks_after_the_last_row_fail() -> None:
    there = (torch.arange(40) < 30)[:, None, None]
    masks = torch.randn(1, 40, 7, 7, generator=torch.Generator().manual_seed(0)) * there
    expected = {**found(), 'masks': masks}
    swapped = {**found(), 'masks': torch.cat([masks[:, :30].roll(1, dims=1), masks[:, 30:]], dim=1)}
    assert compare_detections(expected, swapped, {}, 1e-4)['beyond'] == 1
    assert 'rows from num on are not zero' in str(compare_detections(expected, {**expected, 'masks': masks + 1e-6}, {}, 1e-4)['problem'])


def test_the_overlap_of_masks_is_reported() -> None:
    there = (torch.arange(40) < 30)[:, None, None]
    masks = torch.zeros(1, 40, 4, 4, dtype=torch.uint8)
    masks[:, :, :2] = 1
    # Of half of the masks half is missing; two have nothing in both, which is the same.
    actual = masks.clone()
    actual[:, 15:30, 1] = 0
    masks[:, 13:15], actual[:, 13:15] = 0, 0
    result = compare_detections({**found(), 'masks': masks * there}, {**found(), 'masks': actual * there}, {}, 1e-4)
    assert result['metrics']['mask_iou'] == pytest.approx(0.75)


def test_the_overlap_of_probabilities_is_that_over_a_half() -> None:
    outputs = found()
    sure = torch.full((1, 40, 4, 4), 0.9) * (torch.arange(40) < 30)[:, None, None]
    expected, actual = (dict(dets=torch.cat([outputs['boxes'], outputs['scores'][..., None]], dim=2), labels=outputs['labels'], masks=masks)
                        for masks in (sure, sure.clone()))
    actual['masks'][:, :30, :1] = 0.1
    assert dets.compare(list(expected), expected, actual, {}, 1e-4, None)['metrics']['mask_iou'] == pytest.approx(0.75)


def test_a_sliver_off_by_less_than_the_tolerance_matches() -> None:
    """Of 0.002 px and 0.005 px of height, as Cascade R-CNN gives at the border of a picture; their overlap is under a half."""
    expected, actual = found(), found()
    expected['boxes'][0, 3], actual['boxes'][0, 3] = torch.tensor([10.6, 0.0006, 160, 0.0029]), torch.tensor([10.6, 0.0014, 160, 0.0068])
    assert compare_detections(expected, actual, {}, 1e-4)['beyond'] == 0
    actual['boxes'][0, 3, 3] = 0.5
    assert compare_detections(expected, actual, {}, 1e-4)['beyond'] > 0
