"""Test the rule by which a single channel becomes a label, in both versions of mmseg."""
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmexport.adapters.semantic.one_channel import OneChannel


class Model(nn.Module):
    """Decide as ``BaseSegmentor.postprocess_result`` of mmseg 1.1 and later, or of 1.0."""

    def __init__(self, threshold: float, by_sigmoid: bool) -> None:
        super().__init__()
        self.by_sigmoid = by_sigmoid
        self.decode_head = nn.Conv2d(1, 1, 1)
        self.decode_head.threshold = threshold  # type: ignore[assignment]

    def postprocess_result(self, logits: Tensor, samples: None) -> list[Any]:
        answer = logits.sigmoid() if self.by_sigmoid else logits
        return [SimpleNamespace(seg_logits=SimpleNamespace(data=one),
                                pred_sem_seg=SimpleNamespace(data=(one > self.decode_head.threshold).to(one))) for one in answer]


@pytest.mark.parametrize('by_sigmoid', [True, False])
@pytest.mark.parametrize('threshold', [-2.0, 0.0, 0.01, 0.3, 0.5, 0.65, 0.7, 0.99, 1.0, 3.0])
def test_labels_and_scores_are_those_of_the_model(threshold: float, by_sigmoid: bool) -> None:
    model = Model(threshold, by_sigmoid)
    rule = OneChannel.of(model, model.decode_head)
    assert rule is not None
    assert rule == OneChannel(threshold, by_sigmoid)
    logits = torch.linspace(-6, 6, 48).view(3, 1, 4, 4)
    labels, scores = rule.decide(logits)
    samples = model.postprocess_result(logits, None)
    assert torch.equal(labels, torch.stack([sample.pred_sem_seg.data[0] for sample in samples]).int())
    assert torch.equal(scores, rule.scores_of(torch.stack([sample.seg_logits.data for sample in samples])))
    if 0 < threshold < 1:
        assert torch.equal(labels.bool(), logits[:, 0] > rule.edge)
        assert torch.equal(labels.bool(), scores > rule.least_score)


def test_several_channels_have_no_such_rule() -> None:
    assert OneChannel.of(Model(0.3, True), nn.Conv2d(1, 2, 1)) is None


def test_a_cascade_keeps_the_sigmoid() -> None:
    model = Model(0.3, False)
    head = model.decode_head
    model.decode_head = nn.ModuleList([head])  # type: ignore[assignment]
    assert OneChannel.of(model, head) == OneChannel(0.3)
