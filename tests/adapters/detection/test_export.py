"""Test that detectors are exported and verified: a file's boxes are eager's at sizes that were not traced, and in batches."""
from __future__ import annotations

from pathlib import Path

import pytest

from tests.detectors import QUERIES, STAGES, exported, tiny_detector


def check_export(name: str, backend: str, folder: Path) -> None:
    report = exported(name, tiny_detector(name, backends=[backend]), folder)
    assert report.passed, report.reasons
    assert [artifact.backend for artifact in report.artifacts] == [backend]
    for check in report.checks:
        rows = [row for row in check.rows if row.output == 'detections' and not row.again]
        assert len(rows) > 4 and all(row.metrics['rows'] >= 5 for row in rows)
        raw = {'cls_logits', 'box_preds'} if name in QUERIES else {'rpn_boxes_0', 'features_0'} if name in STAGES else {'boxes_0'}
        assert {row.output for row in check.rows} >= raw, 'raw outputs are compared too'


def test_a_detector_goes_to_torchscript(tmp_path: Path) -> None:
    check_export('atss', 'torchscript', tmp_path)


# Every detector in every format takes more than an hour: `benchmarks/detectors.py`, whose results are in docs/detectors.md.
@pytest.mark.slow
@pytest.mark.parametrize(('name', 'backend'), [('retinanet', 'torch_export'), ('dino', 'openvino'), ('mask_rcnn', 'onnx'),
                                               ('cascade_mask_rcnn', 'torchscript'), ('ssdlite', 'openvino')])
def test_detectors_go_to_each_format(name: str, backend: str, tmp_path: Path) -> None:
    check_export(name, backend, tmp_path)
