"""Test that SSD's head, which mmdet 3.3.0 asks for a loss it lacks, answers, and that the report says what was done."""
from __future__ import annotations

import copy

import pytest
import torch

from mmexport.adapters import build_adapter
from mmexport.compat.missing_loss import give_missing_losses
from mmexport.inputs.synthetic import picture
from mmexport.verification.test_step import run_test_step_on
from tests.detectors import seeded_detector


def test_a_head_without_a_loss_answers_and_others_keep_theirs() -> None:
    model = copy.deepcopy(seeded_detector('ssdlite'))
    adapter = build_adapter(model)
    image = picture((1, 3, 128, 160), 3, adapter)
    del model.bbox_head.loss_cls
    with pytest.raises(AttributeError, match='loss_cls'):
        run_test_step_on(adapter, image)
    assert adapter.remarks() == ()
    give_missing_losses(model)
    with torch.no_grad():
        assert len(run_test_step_on(adapter, image)[0].pred_instances) > 5
    assert 'SSDHead has no loss_cls' in ' '.join(adapter.remarks())

    other = copy.deepcopy(seeded_detector('atss'))
    loss = other.bbox_head.loss_cls
    give_missing_losses(other)
    assert other.bbox_head.loss_cls is loss and build_adapter(other).remarks() == ()
