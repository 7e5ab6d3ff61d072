"""Test YOLACT: fast NMS against mmdet's, masks of test_step, and wrong ones fail."""
from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from mmexport.adapters import build_adapter
from mmexport.adapters.base import Adapter
from mmexport.adapters.detection.boxes import fast_nms
from mmexport.checker.rules.detection_rows import compare_detections
from mmexport.errors import ConfigError, UnsupportedModelError
from mmexport.inputs.synthetic import picture
from mmexport.verification.test_step import run_test_step_on
from tests.detectors import seeded_detector

pytestmark = pytest.mark.xdist_group('dense')


def made(seed: int, count: int, classes: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    corners = (torch.rand(count, 2, generator=generator) * 40).round()
    boxes = torch.cat([corners, corners + (torch.rand(count, 2, generator=generator) * 30).round()], dim=1)
    return boxes, torch.rand(count, classes, generator=generator) ** 3


@pytest.mark.parametrize('seed', range(20))
@pytest.mark.parametrize('top_k', [10, 100])
def test_boxes_are_those_of_mmdet(seed: int, top_k: int) -> None:
    from mmdet.models.layers import fast_nms as upstream
    boxes, scores = made(seed, 50, 4)
    padded = torch.cat([scores, torch.zeros(50, 1)], dim=1)
    expected, labels, _ = upstream(boxes, padded, torch.zeros(50, 1), 0.05, 0.5, top_k)
    ranked = fast_nms.ranked(boxes[None], scores[None], top_k)
    stays = (fast_nms.stays(ranked, 0.5) & (ranked.scores > 0.05))[0]
    values, order = ranked.scores[0][stays].sort(descending=True, stable=True)
    of_class = torch.arange(4)[:, None].expand_as(stays)[stays][order]
    assert torch.equal(values, expected[:, 4]) and torch.equal(of_class, labels)
    assert torch.equal(ranked.boxes[0][stays][order], expected[:, :4])
    assert 5 < len(values) < 190


@pytest.mark.parametrize('seed', range(10))
def test_what_rounding_changes_is_doubtful(seed: int) -> None:
    boxes, scores = made(seed, 60, 3)
    # Many scores that nearly tie.
    scores = 0.01 + (scores * 6).round() / 6 + 1e-4 * scores
    slack = torch.full((1, 3, 60), 1e-4)
    ranked = fast_nms.ranked(boxes[None], scores[None], 60)
    before, doubts = fast_nms.stays(ranked, 0.5), fast_nms.doubtful(ranked, 0.5, slack)
    assert 0 < float(doubts.float().mean()) < 0.5
    generator, changed = torch.Generator().manual_seed(seed), 0
    for _ in range(20):
        moved = scores + 1e-4 * (2 * torch.rand(scores.shape, generator=generator) - 1)
        after = fast_nms.ranked((boxes + 1e-4 * torch.randn(boxes.shape, generator=generator))[None], moved[None], 60)
        # By position: the order of a class is another one.
        stayed = torch.zeros_like(before).scatter(2, after.places, fast_nms.stays(after, 0.5))
        differs = torch.zeros_like(before).scatter(2, ranked.places, before) != stayed
        assert not (differs & ~torch.zeros_like(before).scatter(2, ranked.places, doubts)).any()
        changed += int(differs.sum())
    assert changed > 0


def answers(adapter: Adapter, image: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor], dict[str, Tensor]]:
    with torch.no_grad():
        raw, recorded = adapter.run_with_evidence(image)
        return raw, named(adapter, raw, image), adapter.evidence(raw, image, recorded)


def named(adapter: Adapter, raw: tuple[Tensor, ...], image: Tensor) -> dict[str, Tensor]:
    with torch.no_grad():
        return dict(zip([spec.name for spec in adapter.specs], adapter.final(raw, image), strict=True))


@pytest.mark.parametrize('size', [(128, 160), (161, 97)])
def test_detections_equal_test_step_and_wrong_ones_fail(size: tuple[int, int]) -> None:
    adapter = build_adapter(seeded_detector('yolact'))
    image = picture((2, 3, *size), 3, adapter)
    raw, expected, evidence = answers(adapter, image)
    read = adapter.read(run_test_step_on(adapter, image))
    result = compare_detections(expected, read, evidence, 1e-5)
    assert 'problem' not in result and result['beyond'] == 0 and result['metrics']['rows'] > 40, result
    assert float(evidence['unsure'].float().mean()) < 0.2 and float(evidence['mask_near'].float().mean()) < 0.01
    masks = expected['masks']
    prototypes, model = raw[-1], adapter.model
    planted = [{**expected, 'masks': wrong} for wrong in (masks.roll(1, dims=1), masks.roll(1, dims=0), masks.roll(1, dims=3), 1 - masks)]
    planted += [named(adapter, (*raw[:-1], wrong), image) for wrong in (prototypes.roll(1, dims=1), -prototypes)]
    for setting, value in (('iou_thr', 0.6), ('top_k', 3), ('mask_thr', 0.55), ('score_thr', float(expected['scores'][0, 20]))):
        cfg, model.bbox_head.test_cfg = model.bbox_head.test_cfg, copy.deepcopy(model.bbox_head.test_cfg)
        model.bbox_head.test_cfg[setting] = value
        planted.append(named(adapter, raw, image))
        model.bbox_head.test_cfg = cfg
    for number, wrong in enumerate(planted):
        assert compare_detections(expected, wrong, evidence, 1e-4)['beyond'] > 0.02, number


def test_what_is_not_known_is_refused() -> None:
    model = copy.deepcopy(seeded_detector('yolact'))
    with pytest.raises(ConfigError, match='this is detection .fast NMS with masks.'):
        build_adapter(model, img_shape=True)
    model.bbox_head.test_cfg.max_per_img = -1
    with pytest.raises(UnsupportedModelError, match='max_per_img is no limit'):
        build_adapter(model)

    class Head(type(model.mask_head)):  # type: ignore[misc]
        def crop_single(self, *args: Any) -> Any:
            return super().crop_single(*args)

    model.mask_head.__class__ = Head
    with pytest.raises(UnsupportedModelError, match='Head decides by a crop_single of Head, which mmexport does not know'):
        build_adapter(model)
