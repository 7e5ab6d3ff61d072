"""Check the rules for files that compute in fewer bits."""
from __future__ import annotations

from typing import Any

import pytest

from mmexport.checker.comparison import Comparison
from mmexport.checker.reduced import by_share, rule
from tests.checker.made import judge_rows


@pytest.mark.parametrize(('change', 'words'), [('nothing', None), ('score', None), ('box', None), ('row', 'are found again'),
                                               ('label', 'are found again'), ('scores', 'a score is off'), ('boxes', 'a box is')])
def test_reduced_precision_instances(change: str, words: str | None) -> None:
    for precision in ('float16', 'bfloat16'):
        reason = judge_rows(change, precision=precision).reason
        assert reason is None if words is None else words in str(reason), (change, precision)


def row(precision: str = 'float16', kind: str = 'pixels', median: float | None = 0.0, cosine: float | None = 1.0,
        beyond: float | None = 0.0, **metrics: float) -> Comparison:
    return Comparison('s', 'o', 't', kind, 1e-4, median=median, cosine=cosine, beyond=beyond, metrics=metrics, precision=precision)


ROWS: dict[str, Any] = dict(kind='instance', rows=200, rows_lost=0, score_error=0.0, best_score=0.5, box_error=0.0, mask_iou=1.0)


@pytest.mark.parametrize(('given', 'words'), [
    (dict(), None),
    (dict(median=None), 'nothing was compared'),
    (dict(cosine=None), 'nothing was compared'),
    (dict(median=5e-3), None),
    (dict(median=5.1e-3), 'median error 5.1e-03 of scale, limit 0.005 in float16'),
    (dict(median=float('nan')), 'median error nan of scale, limit 0.005 in float16'),
    (dict(median=4e-2, precision='bfloat16'), None),
    (dict(median=4.1e-2, precision='bfloat16'), 'median error 4.1e-02 of scale, limit 0.04 in bfloat16'),
    (dict(cosine=0.99), None),
    (dict(cosine=0.9899), 'cosine 0.9899, at least 0.99 required in float16'),
    (dict(cosine=0.97, precision='bfloat16'), None),
    (dict(clear_share=0.25, clear_agreement=0.99), None),
    (dict(clear_share=0.24, clear_agreement=1.0), 'eager is clear about 24% of its decisions only, too few to judge float16 by'),
    (dict(clear_share=1.0, clear_agreement=0.98), 'clear_agreement 98.00%, at least 99% required in float16'),
    (dict(mask_iou=0.99), None),
    (dict(mask_iou=0.98), 'mask_iou 98.00%, at least 99% required in float16'),
    (dict(mask_iou=0.97, clear_agreement=0.98), 'mask_iou 97.00%, at least 99% required in float16'),
    (dict(mask_iou=0.98, clear_agreement=0.97), 'clear_agreement 97.00%, at least 99% required in float16'),
    # Of logits all pixels may change their class where none is clear.
    (dict(pixel_agreement=0.5), None),
    (dict(kind='labels', median=None, cosine=None, pixel_agreement=0.99), None),
    (dict(kind='labels', median=None, cosine=None, pixel_agreement=0.98), 'pixel_agreement 98.00%, at least 99% required in float16'),
    (dict(ROWS), None),
    (dict(ROWS, mask_iou=0.98), 'mask_iou 98.00%, at least 99% required in float16'),
    (dict(ROWS, rows_lost=2), None),
    (dict(ROWS, rows_lost=3), '98.50% of the instances are found again, at least 99% required in float16'),
    (dict(ROWS, rows=0, rows_lost=1), '0.00% of the instances are found again, at least 99% required in float16'),
    (dict(ROWS, score_error=0.025), None),
    (dict(ROWS, score_error=0.026), 'a score is off by 5.2e-02 of the best, limit 0.05 in float16'),
    (dict(ROWS, box_error=1.0), None),
    (dict(ROWS, box_error=2.0), 'a box is 2 pixels off its mask, limit 1 in float16')])
def test_reduced_precision_reasons(given: dict[str, Any], words: str | None) -> None:
    assert row(**given).reason == words


@pytest.mark.parametrize(('beyond', 'words'), [
    (0.01, None), (0.02, 'found 98.00%, at least 99% required in float16'), (None, 'nothing was compared')])
def test_decisions_of_a_kind_without_a_rule(beyond: float | None, words: str | None) -> None:
    assert by_share(row(beyond=beyond)) == words


def test_reduced_precision_rule_text() -> None:
    assert rule('bfloat16') == 'bfloat16: median error <= 0.04, cosine >= 0.97, at least 97% of clear decisions or instances agree'
