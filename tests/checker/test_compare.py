"""Check what is compared before any value: counts, names, shapes, dtypes, NaN."""
from __future__ import annotations

from typing import Any

import pytest
import torch

from mmexport.checker.compare import compare, lost_key, median_key, output_of, own_floors, rounding_key
from mmexport.checker.comparison import Comparison
from mmexport.checker.reduced import FULL
from tests.checker.made import INSTANCE, LOGITS, instances, judge


@pytest.mark.parametrize('value', [float('nan'), float('inf')])
def test_nan_fails_even_if_eager_has_nan(value: float) -> None:
    expected = torch.randn(1, 2, 4, 4)
    broken = expected.clone()
    broken[0, 0, 0, 0] = value
    for one, other in ((expected, broken), (broken, expected), (broken, broken)):
        row = judge(LOGITS, one, other, floors={'logits': 1.0})
        assert not row.passed
        assert 'NaN or inf' in str(row.reason)


SPECS = [dict(name='logits', kind='pixels'), dict(name='labels', kind='labels')]
LOGIT, LABEL = torch.randn(1, 2, 4, 5, generator=torch.Generator().manual_seed(0)), torch.ones(1, 4, 5, dtype=torch.int32)


def rows_of(*actual: Any, expected: dict[str, torch.Tensor] | None = None, **given: Any) -> list[Comparison]:
    expected = dict(logits=LOGIT, labels=LABEL) if expected is None else expected
    return compare(SPECS, expected, actual, {}, sample='wide', stage='artifact vs eager', **given)


def test_compare_returns_one_row_per_output() -> None:
    floors = {'logits': 0.1, lost_key('labels'): 0.2, median_key('logits'): 3e-4, rounding_key('labels'): 2e-4}
    rows = rows_of(LOGIT, LABEL, floors=floors, tolerance=1e-3, precision='float16')
    assert [(row.sample, row.output, row.stage, row.kind, row.tolerance, row.floor, row.lost_floor, row.precision) for row in rows] == [
        ('wide', 'logits', 'artifact vs eager', 'pixels', 1e-3, 0.1, 0.0, 'float16'),
        ('wide', 'labels', 'artifact vs eager', 'labels', 1e-3, 0.0, 0.2, 'float16')]
    assert [(row.median_floor, row.rounding) for row in rows] == [(3e-4, 0.0), (0.0, 2e-4)]
    assert own_floors(floors) == {rounding_key('labels'): 2e-4}
    of_rows = {'detections': 0.1, lost_key('detections'): 0.2}
    assert own_floors({**floors, **of_rows}) == {rounding_key('labels'): 2e-4, **of_rows}
    assert [output_of(key) for key in floors] == ['logits', 'labels', 'logits', 'labels']
    assert all(row.passed for row in rows)


def test_compare_defaults_to_float32_without_floors() -> None:
    assert [(row.tolerance, row.floor, row.lost_floor, row.precision) for row in rows_of(LOGIT, LABEL)] == [(1e-4, 0.0, 0.0, FULL)] * 2


@pytest.mark.parametrize(('actual', 'problem'), [
    ((LOGIT,), '1 outputs instead of 2 (logits, labels): one was lost or added'),
    ((LOGIT, LABEL, LABEL), '3 outputs instead of 2 (logits, labels): one was lost or added'),
    ((LOGIT, [1]), 'is a list, not a tensor'),
    ((LOGIT[..., :4], LABEL), 'shape (1, 2, 4, 4) instead of (1, 2, 4, 5): a size may be baked into the graph'),
    ((LOGIT.double(), LABEL), 'dtype torch.float64 instead of torch.float32: are two outputs in the wrong order?'),
    ((LABEL, LOGIT), 'shape (1, 4, 5) instead of (1, 2, 4, 5): a size may be baked into the graph'),
    ((LOGIT / 0, LABEL), 'NaN or inf in the actual values')])
def test_count_type_shape_and_dtype_errors_are_named(actual: tuple[Any, ...], problem: str) -> None:
    row = rows_of(*actual)[0]
    assert (row.problem, row.passed) == (problem, False)
    assert row.output == ('(all)' if len(actual) != 2 else 'labels' if isinstance(actual[1], list) else 'logits')
    assert row.kind == ('count' if len(actual) != 2 else 'labels' if isinstance(actual[1], list) else 'pixels')


def test_output_names_must_match() -> None:
    row, = rows_of(LOGIT, LABEL, expected=dict(logits=LOGIT, classes=LABEL))
    assert row.problem == "outputs are named ['logits', 'labels'], expected ['classes', 'logits']"
    assert (row.output, row.kind) == ('(all)', 'count')


def test_nan_in_expected_values_is_named() -> None:
    row, = rows_of(LOGIT, LABEL, expected=dict(logits=LOGIT / 0, labels=LABEL))
    assert row.problem == 'NaN or inf in the expected values'


def test_reduced_precision_compares_clear_decisions() -> None:
    """Twice the median that the precision may be off, of the scale: 0.01 in float16, 0.08 in bfloat16."""
    expected = torch.zeros(1, 2, 1, 4)
    expected[0, 0] = torch.tensor([1.0, 0.03, 0.009, 0.005])
    for precision, share in (('float16', 0.5), ('bfloat16', 0.25)):
        row = judge(LOGITS, expected, expected, precision=precision)
        assert (row.metrics['clear_share'], row.metrics['clear_agreement']) == (share, 1.0)
    assert 'clear_share' not in judge(LOGITS, expected, expected).metrics
    # Between twice and three times the median, at a scale of four.
    expected = 4 * torch.tensor([[[[1.0, 0.012]], [[0.0, 0.0]]]])
    assert judge(LOGITS, expected, expected, precision='float16').metrics['clear_share'] == 1.0


def test_instances_are_compared_as_one_group() -> None:
    actual = instances()
    specs = [*INSTANCE, dict(name='map', kind='labels')]
    rows = compare(specs, {**actual, 'map': LABEL}, [*actual.values(), LABEL + 1], {}, sample='s', stage='t')
    assert [(row.output, row.kind, row.passed) for row in rows] == [('map', 'labels', False), ('instances', 'instance', True)]
