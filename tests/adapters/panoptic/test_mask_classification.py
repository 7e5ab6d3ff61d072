"""Test panoptic and instance decisions, from tensor operations, against mmdet's own."""
from __future__ import annotations

import torch

from mmexport.adapters import MaskClassification, build_adapter
from mmexport.adapters.panoptic.boxes import boxes_of
from tests.tiny import seeded


def test_panoptic_thresholds_fall_as_upstreams_python_loop_does() -> None:
    """Ratios at the threshold, ties, void, things and stuff, filter_low_score: thirty random cases of each."""
    adapter = build_adapter(seeded('mask2former_r50'))
    assert isinstance(adapter, MaskClassification)
    generator = torch.Generator().manual_seed(0)
    for case in range(60):
        adapter.fusion.test_cfg.filter_low_score = bool(case % 2)
        cls_logits = torch.randn(2, 12, 134, generator=generator) + 9 * torch.nn.functional.one_hot(
            torch.randint(0, 134, (2, 12), generator=generator), 134)
        masks = 3 * torch.randn(2, 12, 10, 12, generator=generator)
        actual = adapter.panoptic(cls_logits, masks)[0]
        for image in range(2):
            expected = adapter.fusion.panoptic_postprocess(cls_logits[image], masks[image]).sem_seg[0]
            assert torch.equal(actual[image], expected)
    adapter.fusion.test_cfg.filter_low_score = True


def test_nothing_found_is_all_void() -> None:
    adapter = build_adapter(seeded('mask2former_r50'))
    assert isinstance(adapter, MaskClassification)
    actual = adapter.panoptic(torch.zeros(1, 5, 134), torch.zeros(1, 5, 4, 4))[0]
    assert (actual == 133).all()


def test_boxes_of_masks() -> None:
    masks = torch.zeros(1, 2, 6, 8, dtype=torch.bool)
    masks[0, 0, 2:4, 1:7] = True
    assert boxes_of(masks).tolist() == [[[1, 2, 7, 4], [0, 0, 0, 0]]]
