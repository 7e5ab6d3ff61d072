"""Test that the rows of Soft-NMS which rounding changes are in doubt, and that other settings are told from it."""
from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mmexport.adapters.detection.boxes.candidates import Candidates
from mmexport.adapters.detection.boxes.evidence import close_calls
from mmexport.adapters.detection.boxes.suppression import check_suppression, kept
from mmexport.checker.kinds.detections import NAMES
from mmexport.checker.rules.detection_rows import compare_detections
from mmexport.errors import UnsupportedModelError
from tests.adapters.detection.boxes.crowds import SCALE, crowd, rounded

METHODS = ('linear', 'gaussian', 'naive')


def config(method: str, limit: int, **others: Any) -> dict[str, Any]:
    return dict(score_thr=0.05, max_per_img=limit, nms=dict(type='soft_nms', method=method, min_score=0.02, **others))


def rows(candidates: Candidates, cfg: dict[str, Any]) -> dict[str, Tensor]:
    return dict(zip(NAMES, kept(candidates, cfg), strict=True))


@pytest.mark.parametrize('limit', [12, 80])
@pytest.mark.parametrize('method', METHODS)
def test_what_rounding_changes_was_in_doubt(method: str, limit: int) -> None:
    cfg, unsure, total, moved = config(method, limit), 0, 0, 0
    for seed in range(20):
        candidates, generator = crowd(seed), torch.Generator().manual_seed(seed)
        expected, evidence = rows(candidates, cfg), close_calls(candidates, cfg, SCALE)
        unsure, total = unsure + int(evidence['unsure'].sum()), total + int(expected['num'])
        for _ in range(8):
            actual = rows(rounded(candidates, generator), cfg)
            result = compare_detections(expected, actual, {'row_slack': 0.01 * expected['scores']}, 1e-4)
            moved += int(result['beyond'] > 0)
            metrics = compare_detections(expected, actual, evidence, 1e-4)['metrics']
            assert [metrics[name] for name in ('rows_lost', 'rows_new', 'rows_wrong')] == [0, 0, 0], (seed, metrics)
    assert moved > 20, 'rounding changes much here'
    assert unsure < 0.4 * total, 'and most rows are sure all the same'


@pytest.mark.parametrize(('method', 'fault'), [
    ('linear', dict(method='gaussian')), ('linear', dict(iou_threshold=0.35)), ('gaussian', dict(sigma=0.55)), ('linear', dict(type='nms')),
    ('linear', dict(min_score=0.1)), ('gaussian', dict(method='linear')), ('linear', dict(offset=1))])
def test_other_settings_are_told(method: str, fault: dict[str, Any]) -> None:
    found = 0
    for seed in range(10):
        candidates, cfg = crowd(seed), config(method, 60)
        wrong = {**cfg, 'nms': {**cfg['nms'], **fault}}
        if fault.get('type') == 'nms':
            wrong['nms'] = dict(type='nms', iou_threshold=0.3)
        result = compare_detections(rows(candidates, cfg), rows(candidates, wrong), close_calls(candidates, cfg, SCALE), 1e-4)
        found += int(sum(result['metrics'][name] for name in ('rows_lost', 'rows_new', 'rows_wrong')) > 0)
    assert found == 10


def test_boxes_that_tie_may_change_places() -> None:
    boxes = torch.tensor([[0.0, 0, 100, 100], [0, 10, 100, 110], [300, 0, 400, 100]])
    candidates = Candidates(boxes[None], torch.tensor([[0.8, 0.8, 0.7]]), torch.zeros(1, 3, dtype=torch.int64),
                            torch.ones(1, 3, dtype=torch.bool))
    evidence = close_calls(candidates, config('linear', 3), SCALE)
    assert evidence['unsure'][0].tolist() == [True, False, True]
    maybe = evidence['maybe'][0]
    low, high = maybe[:, 4] - evidence['maybe_slack'][0], maybe[:, 4] + evidence['maybe_slack'][0]
    assert len(maybe) == 2 and bool((low < 0.2).all() and (high > 0.79).all())


@pytest.mark.parametrize(('nms', 'words'), [
    (dict(type='soft_nms', method='cubic'), "the method 'cubic'"), (dict(type='soft_nms', max_num=5), 'max_num'),
    (dict(type='nms_rotated'), 'nms and')])
def test_what_mmcv_does_not_take_is_refused(nms: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        check_suppression(dict(nms=nms), 'nms', 'soft_nms')
