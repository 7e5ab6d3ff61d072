"""Take the detector that a semi-supervised one predicts by.

Soft Teacher and its relatives hold two copies of a detector and predict by one of them, which is all that a file needs.

Source: mmdet/models/detectors/semi_base.py, ``SemiBaseDetector.predict``.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from mmengine.config import Config


def predictor(model: nn.Module) -> nn.Module:
    """Return the teacher or the student of a semi-supervised detector, as its ``semi_test_cfg`` says; any other model as it is."""
    options = getattr(model, 'semi_test_cfg', None)
    if options is None or not hasattr(model, 'teacher'):
        return model
    chosen: nn.Module = model.teacher if options.get('predict_on', 'teacher') == 'teacher' else model.student  # type: ignore[assignment]
    # Of the branches' preprocessor, the one that test_step uses.
    chosen.data_preprocessor = getattr(model.data_preprocessor, 'data_preprocessor', model.data_preprocessor)
    return chosen


def predictor_section(cfg: Config) -> Any:
    """Return ``cfg.model``, or the detector in it that predicts."""
    section = cfg.model
    return section.detector if 'detector' in section and 'semi_test_cfg' in section else section
