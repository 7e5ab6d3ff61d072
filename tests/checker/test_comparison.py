"""Check the rule by which a row passes."""
from __future__ import annotations

from typing import Any

import pytest
import torch

from mmexport.checker.compare import lost_key
from mmexport.checker.comparison import Comparison
from tests.checker.made import LABELS, LOGITS, judge, judge_rows

FLOAT16 = 'float16: median error <= 0.005, cosine >= 0.99, at least 99% of clear decisions or instances agree'


def test_zero_floor_limits_the_maximum_error() -> None:
    expected = torch.randn(1, 4, 8, 8)
    assert judge(LOGITS, expected, expected + 0.9e-4 * expected.abs().max()).passed
    one_pixel = expected.clone()
    one_pixel[0, 0, 0, 0] += 1.1e-4 * float(expected.abs().max())
    assert not judge(LOGITS, expected, one_pixel).passed


def test_positive_floor_allows_few_small_jumps() -> None:
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


def test_decisions_get_no_slack_above_the_floor() -> None:
    expected = torch.randint(0, 5, (1, 10, 10), dtype=torch.int32)
    actual = expected.clone()
    actual[0, 0, :2] += 1
    assert not judge(LABELS, expected, actual, floors={'labels': 1e-7}).passed
    assert judge(LABELS, expected, actual, floors={'labels': 0.02}).passed


def test_lost_instances_have_their_own_floor() -> None:
    name = judge_rows('nothing').output
    assert judge_rows('score', floors={name: 0.5}).passed
    assert 'lost or new' in str(judge_rows('row', floors={name: 0.5}).reason)
    assert judge_rows('row', floors={name: 0.5, lost_key(name): 0.34}).passed


def test_comparison_json_round_trip() -> None:
    row = judge(LOGITS, torch.randn(1, 2, 3, 3), torch.randn(1, 2, 3, 3))
    assert Comparison.from_dict(row.as_dict()) == row


FIGURES: dict[str, Any] = dict(sample='s', output='o', stage='t', tolerance=1e-4, max_abs=1.0, cosine=1.0)


def pixels(**given: Any) -> Comparison:
    return Comparison(**{**FIGURES, 'kind': 'pixels', 'max_rel': 0.0, 'beyond': 0.0, 'median': 0.0, **given})


def labels(**given: Any) -> Comparison:
    return Comparison(**{**FIGURES, 'kind': 'labels', 'beyond': 0.0, **given})


@pytest.mark.parametrize('kind', ['queries', 'pixels', 'map', 'labels', 'panoptic', 'instance', 'count'])
def test_continuous_kinds(kind: str) -> None:
    assert pixels(kind=kind).continuous == (kind in ('queries', 'pixels', 'map'))


@pytest.mark.parametrize(('row', 'rule', 'reason'), [
    (pixels(max_rel=1e-4), 'max <= 0.0001', None),
    (pixels(max_rel=1.01e-4), 'max <= 0.0001', 'error 1.0e-04 of scale, limit 0.0001'),
    (pixels(max_rel=None), 'max <= 0.0001', 'nothing was compared'),
    (pixels(beyond=None), 'max <= 0.0001', 'nothing was compared'),
    (pixels(median=None), 'max <= 0.0001', 'nothing was compared'),
    (pixels(floor=0.1, beyond=0.12), 'beyond <= 0.120, median <= 0.0001, max < 0.01', None),
    (pixels(floor=0.1, beyond=0.1201), 'beyond <= 0.120, median <= 0.0001, max < 0.01', '12.0% beyond the tolerance, limit 12.0%'),
    (pixels(floor=0.1, median=1e-4), 'beyond <= 0.120, median <= 0.0001, max < 0.01', None),
    (pixels(floor=0.1, median=2e-4), 'beyond <= 0.120, median <= 0.0001, max < 0.01', 'median error 2.0e-04 of scale, limit 0.0001'),
    (pixels(floor=0.1, median=2e-4, median_floor=2e-4), 'beyond <= 0.120, median <= 0.0002, max < 0.01', None),
    (pixels(floor=0.1, median=3e-4, median_floor=2e-4), 'beyond <= 0.120, median <= 0.0002, max < 0.01',
     'median error 3.0e-04 of scale, limit 0.0002'),
    (pixels(floor=0.1, median=6e-4, median_floor=1e-2), 'beyond <= 0.120, median <= 0.0005, max < 0.01',
     'median error 6.0e-04 of scale, limit 0.0005'),
    (pixels(floor=0.1, median=1e-4, median_floor=5e-5), 'beyond <= 0.120, median <= 0.0001, max < 0.01', None),
    (pixels(max_rel=2e-4, median_floor=2e-4), 'max <= 0.0001', 'error 2.0e-04 of scale, limit 0.0001'),
    (pixels(max_rel=3e-4, rounding=1.7e-4), 'max <= 0.00034', None),
    (pixels(max_rel=4e-4, rounding=1.7e-4), 'max <= 0.00034', 'error 4.0e-04 of scale, limit 0.00034'),
    (pixels(max_rel=6e-4, rounding=9e-3), 'max <= 0.0005', 'error 6.0e-04 of scale, limit 0.0005'),
    (pixels(max_rel=1.1e-4, rounding=3e-5), 'max <= 0.0001', 'error 1.1e-04 of scale, limit 0.0001'),
    (pixels(max_rel=3e-4, rounding=1.7e-4, floor=0.1, beyond=1.0), 'beyond <= 0.120, median <= 0.0001, max < 0.01', None),
    (pixels(floor=0.1, max_rel=9.9e-3), 'beyond <= 0.120, median <= 0.0001, max < 0.01', None),
    (pixels(floor=0.1, max_rel=1e-2), 'beyond <= 0.120, median <= 0.0001, max < 0.01',
     'worst error 1.0e-02 of scale, limit 0.01'),
    (pixels(problem='planted'), 'max <= 0.0001', 'planted'),
    (labels(), 'equal where eager is clear', None),
    (labels(beyond=None), 'equal where eager is clear', 'nothing was compared'),
    (labels(beyond=0.0001), 'equal where eager is clear', '0.01% differs where eager is clear, limit 0.00%'),
    (labels(beyond=0.25, floor=0.25), 'differs clearly in at most 0.2500, as under noise', None),
    (labels(beyond=0.26, floor=0.25), 'differs clearly in at most 0.2500, as under noise',
     '26.00% differs where eager is clear, limit 25.00%'),
    (labels(lost=0.01), 'equal where eager is clear', '1.00% of the instances are lost or new, limit 0.00%'),
    (labels(lost=0.02, lost_floor=0.02), 'equal where eager is clear', None),
    (labels(max_rel=9.9e-3), 'equal where eager is clear', None),
    (labels(max_rel=1e-2), 'equal where eager is clear', 'worst score error 1.0e-02 of scale, limit 0.01'),
    (pixels(precision='float16', median=5e-3, cosine=0.99), FLOAT16, None),
    (pixels(precision='float16', median=6e-3), FLOAT16,
     'median error 6.0e-03 of scale, limit 0.005 in float16')])
def test_rule_and_reason_texts(row: Comparison, rule: str, reason: str | None) -> None:
    assert (row.rule, row.reason, row.passed) == (rule, reason, reason is None)
    content = row.as_dict()
    assert (content['rule'], content['reason'], content['passed']) == (rule, reason, reason is None)


def test_nan_metric_fails() -> None:
    for figures in (dict(max_rel=float('nan')), dict(beyond=float('nan'), floor=0.1), dict(median=float('nan'), floor=0.1)):
        assert not pixels(**figures).passed
    assert not labels(beyond=float('nan')).passed
