"""Test that boxes are placed by points as in mmdet, and that a point whose best cells nearly tie is unsure."""
from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from mmexport.adapters import build_adapter
from mmexport.adapters.detection.stages import grid
from mmexport.adapters.detection.stages.regions import Features
from mmexport.checker.rules.detection_rows import compare_detections
from mmexport.errors import UnsupportedModelError
from mmexport.inputs.synthetic import picture
from tests.detectors import seeded_detector

pytestmark = pytest.mark.xdist_group('two_stage')


def made() -> tuple[Any, tuple[Tensor, ...], Features, Tensor]:
    """Return the adapter, raw outputs, the maps that regions are cut from, and boxes (2, 30, 4)."""
    adapter = build_adapter(seeded_detector('grid_rcnn'))
    generator = torch.Generator().manual_seed(0)
    corners = torch.rand(2, 30, 2, generator=generator) * 80
    boxes = torch.cat([corners, corners + torch.rand(2, 30, 2, generator=generator) * 60 + 5], dim=2)
    with torch.no_grad():
        raw, _ = adapter.run_with_evidence(picture((2, 3, 128, 160), 3, adapter))
    return adapter, raw, adapter.groups(raw)[1], boxes


def test_boxes_are_those_of_mmdet() -> None:
    adapter, _, features, boxes = made()
    roi_head = adapter.model.roi_head
    with torch.no_grad():
        answer = grid.placed(roi_head, features, boxes)
        for number in range(2):
            maps = answer.logits[number].unflatten(2, (28, 28)).clone()
            expected = roi_head.grid_head._predict_by_feat_single(maps, boxes[number].clone(), dict(img_shape=(128, 160)))
            torch.testing.assert_close(answer.boxes[number], expected, atol=1e-4, rtol=1e-5)
    assert float((answer.boxes - boxes).abs().max()) > 5


def test_boxes_that_rounding_may_place_elsewhere_are_unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, _, features, boxes = made()
    roi_head = adapter.model.roi_head
    with torch.no_grad():
        before, (unsure, middle, slack) = grid.placed(roi_head, features, boxes), grid.in_doubt(roi_head, features, boxes)
        assert 0 < float(unsure.float().mean()) < 0.6
        scale, forward, changed = float(before.logits.abs().max()), type(roi_head.grid_head).forward, 0
        for seed in range(10):
            generator = torch.Generator().manual_seed(seed)

            def moved(head: Any, x: Tensor, generator: torch.Generator = generator) -> dict[str, Tensor]:
                maps = forward(head, x)['fused']
                return {'fused': maps + 5e-5 * scale * (2 * torch.rand(maps.shape, generator=generator) - 1)}

            with monkeypatch.context() as patch:
                patch.setattr(type(roi_head.grid_head), 'forward', moved)
                after = grid.placed(roi_head, features, boxes)
            elsewhere = (after.logits.argmax(dim=3) != before.logits.argmax(dim=3)).any(dim=2)
            assert not (elsewhere & ~unsure).any()
            assert not ((after.boxes - middle).abs() > slack + 1e-2).any(), 'it is where it may be'
            changed += int(elsewhere.sum())
    assert changed > 0


def test_other_boxes_fail() -> None:
    adapter, raw, _, _ = made()
    image = picture((2, 3, 128, 160), 3, adapter)
    with torch.no_grad():
        expected = dict(zip([spec.name for spec in adapter.specs], adapter.final(raw, image), strict=True))
        evidence = adapter.evidence(raw, image, {})
    assert compare_detections(expected, expected, evidence, 1e-4)['beyond'] == 0
    boxes = expected['boxes']
    for planted in (boxes + boxes.new_tensor([0, 0, 0.5, 0]), boxes.clamp(max=128.0), boxes.roll(1, dims=0)):
        assert compare_detections(expected, {**expected, 'boxes': planted}, evidence, 1e-4)['beyond'] > 0.05


def test_a_head_of_its_own_is_refused() -> None:
    model = copy.deepcopy(seeded_detector('grid_rcnn'))

    class Head(type(model.roi_head.grid_head)):  # type: ignore[misc]
        def _predict_by_feat_single(self, *args: Any, **kwargs: Any) -> Any:
            return super()._predict_by_feat_single(*args, **kwargs)

    model.roi_head.grid_head.__class__ = Head
    with pytest.raises(UnsupportedModelError, match='Head decides by a _predict_by_feat_single of Head, which mmexport does not know'):
        build_adapter(model)
