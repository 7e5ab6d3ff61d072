"""Test that a file with a fault that eager has not is caught: the fault is planted while the model is traced, as a wrong patch would."""
from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mmexport.adapters.detection import detection
from mmexport.adapters.detection.candidates import Candidates
from tests.detectors import exported, tiny_detector

# One worker runs them: they share what is computed once.
pytestmark = pytest.mark.xdist_group('atss')

Rows = tuple[Tensor, Tensor, Tensor, Tensor]


def with_setting(**changes: Any) -> Callable[[Candidates, Any], Rows]:
    def faulty(candidates: Candidates, cfg: Any) -> Rows:
        cfg = copy.deepcopy(cfg)
        cfg.update(changes)
        return kept(candidates, cfg)
    return faulty


def after(change: Callable[[Tensor, Tensor, Tensor, Tensor], Rows]) -> Callable[[Candidates, Any], Rows]:
    return lambda candidates, cfg: change(*kept(candidates, cfg))


def before(change: Callable[[Candidates], Candidates]) -> Callable[[Candidates, Any], Rows]:
    return lambda candidates, cfg: kept(change(candidates), cfg)


def without_the_first(boxes: Tensor, scores: Tensor, labels: Tensor, num: Tensor) -> Rows:
    shifted = [torch.cat([rows[:, 1:], torch.zeros_like(rows[:, :1])], dim=1) for rows in (boxes, scores, labels)]
    return shifted[0], shifted[1], shifted[2], (num - 1).clamp(min=0)


kept = detection.kept
FAULTS: dict[str, Callable[[Candidates, Any], Rows]] = {
    'threshold of suppression 0.5 for 0.6': with_setting(nms=dict(type='nms', iou_threshold=0.5)),
    'classes suppress one another': with_setting(nms=dict(type='nms', iou_threshold=0.6, class_agnostic=True)),
    'threshold of the score twice as high': before(lambda rows: rows._replace(valid=rows.valid & (rows.scores > 0.1))),
    'labels shifted by one': after(lambda boxes, scores, labels, num: (boxes, scores, (labels + 1) % 12, num)),
    'boxes 2 px off': after(lambda boxes, scores, labels, num: (boxes + 2 * (scores > 0)[..., None], scores, labels, num)),
    'the best box dropped': after(without_the_first),
    'a level left out': before(lambda rows: rows._replace(valid=rows.valid & (torch.arange(rows.valid.shape[1]) < 2000))),
    'the first picture for all': after(lambda boxes, scores, labels, num: (boxes[:1].expand_as(boxes), scores[:1].expand_as(scores),
                                                                           labels[:1].expand_as(labels), num[:1].expand_as(num))),
}


@pytest.mark.slow
@pytest.mark.parametrize('fault', FAULTS)
def test_a_planted_fault_is_caught(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(candidates: Candidates, cfg: Any) -> Rows:
        return (FAULTS[fault] if torch.jit.is_tracing() else kept)(candidates, cfg)

    monkeypatch.setattr(detection, 'kept', planted)
    report = exported('atss', tiny_detector('atss', backends=['torchscript']), tmp_path)
    assert report.passed is False
    assert any('detections' in reason for reason in report.reasons), report.reasons
