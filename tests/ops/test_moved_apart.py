"""Test that boxes of different classes are moved apart by mmcv's arithmetic."""
from __future__ import annotations

import torch

from mmexport.ops.nms import moved_apart


def boxes_and_labels() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    corners = torch.rand(2, 40, 2, 2, generator=generator).sort(dim=2).values.flatten(2) * 311.7 - 3
    return corners, torch.randint(0, 5, (2, 40), generator=generator)


def test_boxes_are_moved_as_mmcvs_batched_nms_does() -> None:
    boxes, labels = boxes_and_labels()
    moved = moved_apart(boxes, labels, torch.ones_like(labels, dtype=torch.bool))
    for number, picture in enumerate(boxes):
        # mmcv/ops/nms.py, batched_nms.
        expected = picture + (labels[number].to(picture) * (picture.max() + torch.tensor(1).to(picture)))[:, None]
        assert torch.equal(moved[number], expected)


def test_boxes_that_do_not_count_move_nothing() -> None:
    boxes, labels = boxes_and_labels()
    valid = torch.arange(40).expand(2, -1) < torch.tensor([[30], [0]])
    boxes[:, 30:] *= 100
    moved = moved_apart(boxes, labels, valid)
    assert torch.equal(moved[:1, :30], moved_apart(boxes[:1, :30], labels[:1, :30], valid[:1, :30]))
    assert moved[1].isfinite().all()
