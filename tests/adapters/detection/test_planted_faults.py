"""Test that a file with a fault that eager has not is caught; every format: `benchmarks/detector_faults.py`."""
from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.detection.faults import FAULTS, exported_with

GROUPS = dict(atss='atss', faster_rcnn='two_stage', mask_rcnn='two_stage')
# One worker runs those of a detector, which share what eager answers.
GROUPED = [pytest.param(name, marks=pytest.mark.xdist_group(GROUPS[fault.detector])) for name, fault in FAULTS.items()]


@pytest.mark.slow
@pytest.mark.parametrize('name', GROUPED)
def test_a_planted_fault_is_caught(name: str, tmp_path: Path) -> None:
    report = exported_with(name, 'torchscript', tmp_path)
    assert report.passed is False
    assert any('detections' in reason for reason in report.reasons), report.reasons
