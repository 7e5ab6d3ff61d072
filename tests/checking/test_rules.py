"""The rules, on tensors made for them."""
from __future__ import annotations

from typing import Any

import pytest
import torch

from mmexport.checking.compare import compare, lost_of
from mmexport.checking.comparison import Comparison
from mmexport.checking.reduced import FULL
from mmexport.checking.samples import Sample
from mmexport.checking.vacuous import little_change, vacuous_outputs

LOGITS = [dict(name='logits', dtype='float32', kind='pixels')]
LABELS = [dict(name='labels', dtype='int32', kind='labels')]
PANOPTIC = [dict(name='panoptic', dtype='int32', kind='panoptic')]


def judge(specs: list[dict[str, str]], expected: torch.Tensor, actual: torch.Tensor, **given: object) -> Comparison:
    evidence = given.pop('evidence', {})
    rows = compare(specs, {specs[0]['name']: expected}, [actual], evidence, sample='s', stage='t', **given)  # type: ignore[arg-type]
    return rows[0]


def test_a_continuous_model_must_hold_the_plain_maximum() -> None:
    expected = torch.randn(1, 4, 8, 8)
    assert judge(LOGITS, expected, expected + 0.9e-4 * expected.abs().max()).passed
    one_pixel = expected.clone()
    one_pixel[0, 0, 0, 0] += 1.1e-4 * float(expected.abs().max())
    assert not judge(LOGITS, expected, one_pixel).passed


def test_above_a_floor_few_jumps_pass_and_large_ones_never() -> None:
    expected = torch.randn(1, 4, 10, 10)
    scale = float(expected.abs().max())
    jumps = expected.clone()
    jumps[0, 0, 0, :6] += 5e-3 * scale  # 6% of the pixels
    assert judge(LOGITS, expected, jumps, floors={'logits': 0.05}).passed
    assert not judge(LOGITS, expected, jumps, floors={'logits': 0.03}).passed
    assert not judge(LOGITS, expected, jumps).passed
    jumps[0, 0, 0, 0] += 1e-2 * scale
    assert 'worst' in str(judge(LOGITS, expected, jumps, floors={'logits': 0.05}).reason)
    everywhere = expected + 2e-4 * scale
    assert 'median' in str(judge(LOGITS, expected, everywhere, floors={'logits': 1.0}).reason)


@pytest.mark.parametrize('value', [float('nan'), float('inf')])
def test_nan_never_passes_even_where_expected(value: float) -> None:
    expected = torch.randn(1, 2, 4, 4)
    broken = expected.clone()
    broken[0, 0, 0, 0] = value
    for one, other in ((expected, broken), (broken, expected), (broken, broken)):
        row = judge(LOGITS, one, other, floors={'logits': 1.0})
        assert not row.passed
        assert 'NaN or inf' in str(row.reason)


def test_points_at_the_edge_are_exempt_and_no_others() -> None:
    expected = torch.randn(1, 2, 6, 6)
    jump = expected.clone()
    jump[0, :, 2, 3] += 1
    exempt = torch.zeros(1, 6, 6, dtype=torch.bool)
    exempt[0, 2, 3] = True
    assert judge(LOGITS, expected, jump, evidence={'exempt': exempt}).passed
    exempt[0, 2, 3], exempt[0, 3, 3] = False, True
    assert not judge(LOGITS, expected, jump, evidence={'exempt': exempt}).passed


def test_labels_may_differ_only_where_eager_was_unsure() -> None:
    expected = torch.randint(0, 5, (1, 8, 8), dtype=torch.int32)
    actual, margin = expected.clone(), torch.ones(1, 8, 8)
    actual[0, 0, 0] += 1
    assert not judge(LABELS, expected, actual, evidence={'margin': margin}).passed
    margin[0, 0, 0] = 1.9e-4
    behind = torch.full((1, 2, 8, 8), 9, dtype=torch.int32)
    assert not judge(LABELS, expected, actual, evidence={'margin': margin, 'next': behind}).passed
    behind[0, 1, 0, 0] = actual[0, 0, 0]
    row = judge(LABELS, expected, actual, evidence={'margin': margin, 'next': behind})
    assert row.passed
    assert row.metrics['differing'] == 1
    margin[0, 0, 0] = 2.1e-4
    assert not judge(LABELS, expected, actual, evidence={'margin': margin, 'next': behind}).passed


def test_what_is_no_label_fails_where_eager_was_unsure_too() -> None:
    expected = torch.randint(0, 5, (1, 8, 8), dtype=torch.int32)
    garbage = expected.clone()
    garbage[0, :3] = -7
    unsure = torch.zeros(1, 8, 8)
    unsure[0, 4:] = 1.0
    assert not judge(LABELS, expected, garbage, evidence={'margin': unsure}).passed
    assert not judge(LABELS, expected, garbage, evidence={'margin': 1 + unsure, 'exempt': unsure == 0}).passed


def test_segments_below_zero_are_none_and_unsure_pixels_keep_to_candidates() -> None:
    expected = torch.full((1, 6, 6), 133, dtype=torch.int32)
    expected[0, :3] = 1003
    near = torch.zeros(1, 6, 6)
    near[0, 3] = 1.0
    assert not judge(PANOPTIC, expected, -2 - expected, evidence={'near': near}).passed
    moved = expected.clone()
    moved[0, 3] = 7
    assert judge(PANOPTIC, expected, moved, evidence={'near': near, 'candidates': torch.tensor([[3, 7]])}).passed
    assert not judge(PANOPTIC, expected, moved, evidence={'near': near, 'candidates': torch.tensor([[3, 8]])}).passed


def test_panoptic_survives_renumbering_and_nothing_else() -> None:
    expected = torch.full((1, 6, 6), 133, dtype=torch.int32)
    expected[0, :2], expected[0, 2:4], expected[0, 4:] = 1003, 2003, 3007
    renumbered = expected.clone()
    renumbered[0, :2], renumbered[0, 2:4], renumbered[0, 4:] = 2003, 1003, 5007
    assert judge(PANOPTIC, expected, renumbered).passed
    merged = expected.clone()
    merged[0, 2:4] = 1003
    assert not judge(PANOPTIC, expected, merged).passed
    other_class = expected.clone()
    other_class[0, 4:] = 3008
    assert not judge(PANOPTIC, expected, other_class).passed
    lost = expected.clone()
    lost[0, :2] = 133
    near = torch.zeros(1, 6, 6, dtype=torch.bool)
    assert not judge(PANOPTIC, expected, lost, evidence={'near': near}).passed
    near[0, :2] = True
    assert judge(PANOPTIC, expected, lost, evidence={'near': near}).passed


def instances() -> dict[str, torch.Tensor]:
    masks = torch.zeros(1, 4, 8, 8, dtype=torch.bool)
    for row in range(3):
        masks[0, row, 2 * row:2 * row + 2] = True
    boxes = torch.tensor([[[0, 0, 8, 2], [0, 2, 8, 4], [0, 4, 8, 6], [0, 0, 0, 0]]]).float()
    return dict(boxes=boxes, scores=torch.tensor([[0.9, 0.8, 0.7, 0.0]]), labels=torch.tensor([[1, 1, 2, 0]]), masks=masks,
                num=torch.tensor([3]))


INSTANCE = [dict(name=name, dtype='', kind='instance') for name in instances()]


def judge_rows(change: str, floors: dict[str, float] | None = None, precision: str = FULL, **evidence: torch.Tensor) -> Comparison:
    actual = {name: tensor.clone() for name, tensor in instances().items()}
    if change == 'order':
        actual = {name: tensor[:, [2, 0, 1, 3]] if tensor.dim() > 1 else tensor for name, tensor in actual.items()}
    elif change == 'mask':
        actual['masks'][0, 0, 7, 7] = True
        actual['boxes'][0, 0] = torch.tensor([0, 0, 8, 8])
    elif change == 'score':
        actual['scores'][0, 1] += 1e-3
    elif change == 'label':
        actual['labels'][0, 2] = 1
    elif change == 'row':
        actual['num'][0] = 2
        for name in ('boxes', 'scores', 'labels', 'masks'):
            actual[name][0, 2:] = 0
    elif change == 'box':
        actual['boxes'][0, 0, 0] += 1
    elif change == 'boxes':
        actual['boxes'][:] = 0
    elif change == 'scores':
        actual['scores'] *= 0.01
    return compare(INSTANCE, instances(), list(actual.values()), evidence, sample='s', stage='t', floors=floors, precision=precision)[0]


def test_instances_are_a_set() -> None:
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


def test_a_lost_instance_is_not_excused_by_what_noise_does_to_others() -> None:
    name = judge_rows('nothing').output
    assert judge_rows('score', floors={name: 0.5}).passed
    assert 'lost or new' in str(judge_rows('row', floors={name: 0.5}).reason)
    assert judge_rows('row', floors={name: 0.5, lost_of(name): 0.34}).passed


@pytest.mark.parametrize(('change', 'words'), [('nothing', None), ('score', None), ('box', None), ('row', 'are found again'),
                                               ('label', 'are found again'), ('scores', 'a score is off'), ('boxes', 'a box is')])
def test_instances_in_fewer_bits_are_all_found_with_their_scores_and_boxes(change: str, words: str | None) -> None:
    for precision in ('float16', 'bfloat16'):
        reason = judge_rows(change, precision=precision).reason
        assert reason is None if words is None else words in str(reason), (change, precision)


@pytest.mark.parametrize('precision', [FULL, 'float16'])
def test_a_number_that_is_no_label_never_passes(precision: str) -> None:
    expected = torch.randint(0, 5, (1, 64, 64), dtype=torch.int32)
    actual = expected.clone()
    actual[0, :3, :3] = -7
    assert '-7 is no label' in str(judge(LABELS, expected, actual, precision=precision, floors={'labels': 0.5}).reason)


def test_little_change_is_told_in_words() -> None:
    one, other = torch.randn(1, 20, 6, 6), torch.randn(1, 20, 6, 6)
    assert not little_change(LOGITS, {'logits': one}, {'logits': other}, 1e-4, 20)
    frozen = other.clone()
    frozen[:, :2] = one[:, :2]
    assert '90% of the channels' in little_change(LOGITS, {'logits': one}, {'logits': frozen}, 1e-4, 20)['logits']
    two = torch.randint(0, 2, (1, 20, 20), dtype=torch.int32)
    assert 'only 2 labels' in little_change(LABELS, {'labels': two}, {'labels': 1 - two}, 1e-4, 20)['labels']
    many = torch.arange(400, dtype=torch.int32).view(1, 20, 20) % 5
    assert 'only 0.0% of the pixels' in little_change(LABELS, {'labels': many}, {'labels': many}, 1e-4, 20)['labels']
    assert not little_change(LABELS, {'labels': many}, {'labels': (many + 1) % 5}, 1e-4, 20)


def vacuous_of(specs: Any, *outputs: torch.Tensor, **floors: float) -> dict[str, str]:
    name = specs[0]['name']
    samples = [Sample(f'{number}', torch.zeros(1, 3, *tensor.shape[-2:]), {name: tensor}) for number, tensor in enumerate(outputs)]
    return vacuous_outputs(specs, samples, floors, 1e-4)


def test_only_what_a_wrong_answer_would_pass_is_vacuous() -> None:
    blank = torch.zeros(1, 20, 20, dtype=torch.int32)
    rare = blank.clone()
    rare[0, 3:5, 3:5] = 1
    # One object in one picture of three: a constant fails there, and so does another picture's answer.
    assert vacuous_of(LABELS, blank, blank, rare) == {}
    assert 'one class' in vacuous_of(LABELS, blank, blank, blank)['labels']
    assert 'a constant' not in vacuous_of(LABELS, rare, rare)['labels']
    assert "another input's answer" in vacuous_of(LABELS, rare, rare)['labels']
    # As much as noise itself moves is no difference that the rule would see.
    assert vacuous_of(LABELS, blank, blank, rare, labels=0.02)
    flat = torch.full((1, 4, 6, 6), 0.3)
    assert 'a constant' in vacuous_of(LOGITS, flat, flat + 1e-6)['logits'] or "another" in vacuous_of(LOGITS, flat, flat + 1e-6)['logits']
    assert vacuous_of(LOGITS, torch.randn(1, 4, 6, 6), torch.randn(1, 4, 6, 6)) == {}


def test_two_inputs_of_one_shape_are_needed() -> None:
    assert 'no two samples' in vacuous_of(LABELS, torch.zeros(1, 6, 6, dtype=torch.int32), torch.ones(1, 8, 8, dtype=torch.int32))['(all)']


def test_a_masked_border_does_not_set_the_scale() -> None:
    """Of its pixels every class is masked, so that none is far behind the best of its pixel."""
    expected = torch.randn(1, 4, 16, 16)
    expected[:, :, :2] = -1e4
    wrong = expected.clone()
    wrong[:, 0, 8:] += 0.3
    assert judge(LOGITS, expected, expected).passed
    assert 'off by' in str(judge(LOGITS, expected, wrong).reason)


def test_a_masked_class_does_not_set_the_scale() -> None:
    expected = torch.randn(1, 4, 6, 6)
    for mask in (-1e9, -100.0):
        masked = expected.clone()
        masked[:, 3] = mask
        assert judge(LOGITS, masked, masked).passed
        wrong = masked.clone()
        wrong[:, 0] += 0.01
        assert 'off by' in str(judge(LOGITS, masked, wrong).reason)
        other = torch.randn(1, 4, 6, 6)
        other[:, 3] = mask
        assert vacuous_of(LOGITS, masked, other) == {}


def test_a_row_survives_json() -> None:
    row = judge(LOGITS, torch.randn(1, 2, 3, 3), torch.randn(1, 2, 3, 3))
    assert Comparison.from_dict(row.as_dict()) == row


def test_panoptic_encoding_is_not_only_the_class() -> None:
    expected = torch.full((1, 6, 6), 133, dtype=torch.int32)
    expected[0, :2], expected[0, 2:4] = 1003, 120
    for wrong, value in ((1003, 3), (120, 3120), (133, -867), (133, 1133)):
        actual = expected.clone()
        actual[expected == wrong] = value
        assert not judge(PANOPTIC, expected, actual).passed, (wrong, value)


def test_decisions_get_no_slack_beyond_the_noise() -> None:
    expected = torch.randint(0, 5, (1, 10, 10), dtype=torch.int32)
    actual = expected.clone()
    actual[0, 0, :2] += 1
    assert not judge(LABELS, expected, actual, floors={'labels': 1e-7}).passed
    assert judge(LABELS, expected, actual, floors={'labels': 0.02}).passed


def test_too_much_exempt_is_no_comparison() -> None:
    expected = torch.randn(1, 2, 6, 6)
    row = judge(LOGITS, expected, expected * 0, evidence={'exempt': torch.ones(1, 6, 6, dtype=torch.bool)})
    assert 'too few are left' in str(row.reason)
    labels = torch.randint(0, 5, (1, 8, 8), dtype=torch.int32)
    assert 'too few are left' in str(judge(LABELS, labels, labels + 1, evidence={'margin': torch.zeros(1, 8, 8)}).reason)


def test_rows_that_do_not_count_are_zero_and_no_rows_are_no_comparison() -> None:
    wrong = {name: tensor.clone() for name, tensor in instances().items()}
    wrong['scores'][0, 3] = 0.5
    assert 'not zero' in str(compare(INSTANCE, instances(), list(wrong.values()), {}, sample='s', stage='t')[0].reason)
    none = {name: torch.zeros_like(tensor) for name, tensor in instances().items()}
    edge = torch.ones(1, 4, dtype=torch.bool)
    assert not compare(INSTANCE, instances(), list(none.values()), {'edge_rows': edge}, sample='s', stage='t')[0].passed
