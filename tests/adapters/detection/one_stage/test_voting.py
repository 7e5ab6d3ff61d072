"""Test PAA's vote on boxes against mmdet's, and that another vote fails."""
from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from mmexport.adapters import build_adapter
from mmexport.adapters.detection.one_stage.voting import _voted
from mmexport.checker.rules.detection_rows import compare_detections
from mmexport.errors import UnsupportedModelError
from mmexport.inputs.synthetic import picture
from mmexport.verification.test_step import run_test_step_on
from tests.detectors import seeded_detector

pytestmark = pytest.mark.xdist_group('dense')


@pytest.mark.parametrize('seed', range(10))
def test_the_vote_is_that_of_mmdet(seed: int) -> None:
    generator, head = torch.Generator().manual_seed(seed), seeded_detector('paa').bbox_head
    corners = torch.rand(200, 2, generator=generator) * 15
    boxes = torch.cat([corners, corners + 40 + torch.rand(200, 2, generator=generator) * 10], dim=1)
    scores = torch.rand(200, 12, generator=generator) ** 4
    rows = torch.randperm(200, generator=generator)[:30]
    # Each box that stays is among the candidates of its class.
    labels = scores[rows].argmax(dim=1)
    detections = torch.cat([boxes[rows], scores[rows].amax(dim=1, keepdim=True)], dim=1)
    padded = torch.cat([scores, torch.zeros(200, 1)], dim=1)
    expected, of_expected = head.score_voting(detections, labels, boxes, padded, 0.05)
    actual = _voted(boxes[rows][None], labels[None], boxes[None], scores[None], 0.05)[0]
    # mmdet gives them class by class.
    order = torch.cat([(labels == label).nonzero()[:, 0] for label in range(12)])
    assert torch.equal(of_expected, labels[order])
    assert float((actual[order] - expected[:, :4]).abs().max()) < 1e-4
    assert float((actual - boxes[rows]).abs().max()) > 0.5


@pytest.mark.parametrize('img_shape', [False, True])
def test_detections_without_a_vote_fail(img_shape: bool) -> None:
    adapter = build_adapter(seeded_detector('paa'), img_shape=img_shape)
    inputs = adapter.network_inputs(picture((2, 3, 128, 160), 3, adapter))
    names = [spec.name for spec in adapter.specs]
    with torch.no_grad():
        raw, recorded = adapter.run_with_evidence(*inputs)
        expected, evidence = dict(zip(names, adapter.final(raw, *inputs), strict=True)), adapter.evidence(raw, inputs[0], recorded)
        read = adapter.read(run_test_step_on(adapter, *inputs))
        adapter.model = copy.copy(adapter.model)
        adapter.model._modules = {**adapter.model._modules, 'bbox_head': copy.copy(adapter.model.bbox_head)}
        adapter.model.bbox_head.with_score_voting = False
        plain = dict(zip(names, adapter.final(raw, *inputs), strict=True))
        without, doubts = adapter.read(run_test_step_on(adapter, *inputs)), adapter.evidence(raw, inputs[0], recorded)
    result = compare_detections(expected, read, evidence, 1e-5)
    assert result.get('problem') is None and result['beyond'] == 0, result
    assert compare_detections(plain, without, doubts, 1e-5)['beyond'] == 0
    assert compare_detections(expected, without, evidence, 1e-4)['beyond'] > 0.5
    assert float(evidence['unsure'].float().mean()) < 0.2


def test_a_head_of_its_own_is_refused() -> None:
    model = copy.deepcopy(seeded_detector('paa'))

    class Head(type(model.bbox_head)):  # type: ignore[misc]
        def score_voting(self, *args: Any) -> Any:
            return super().score_voting(*args)

    model.bbox_head.__class__ = Head
    with pytest.raises(UnsupportedModelError, match='Head decodes by methods of PAAHead, PAAHead, PAAHead, Head'):
        build_adapter(model)
