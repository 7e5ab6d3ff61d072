"""Compute the masks of detections by the mask head of a RoI head.

Sources: mmdet/models/roi_heads/standard_roi_head.py and mask_heads/fcn_mask_head.py; pasting them into the picture is left to the user
of the file.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ...utils.override import override
from .regions import rois_of, sizes_in_doubt

HEADS = ('FCNMaskHead',)
METHODS = ('predict_by_feat', '_predict_by_feat_single')


def mask_logits(roi_head: Any, features: list[Tensor], boxes: Tensor, labels: Tensor) -> Tensor:
    """Return the masks (N, K, h, w) of boxes (N, K, 4), each of its label."""
    answers = roi_head._mask_forward(features, rois_of(boxes))['mask_preds'].unflatten(0, boxes.shape[:2])
    if roi_head.mask_head.class_agnostic:
        return answers[:, :, 0]
    index = labels[..., None, None, None].expand(-1, -1, 1, answers.shape[3], answers.shape[4])
    chosen: Tensor = answers.gather(2, index)[:, :, 0]
    return chosen


def cells_of(roi_head: Any) -> tuple[int, int]:
    """Return height and width of a mask."""
    height, width = roi_head.mask_roi_extractor.roi_layers[0].output_size
    times = int(roi_head.mask_head.scale_factor) if roi_head.mask_head.upsample_method else 1
    return times * int(height), times * int(width)


def mask_doubts(roi_head: Any, features: list[Tensor], rows: tuple[Tensor, ...], tolerance: float) -> dict[str, Tensor]:
    """Return `mask_slack` and `mask_unsure` (N, K): what moving its box does to a mask.

    Args:
        rows: boxes, labels and masks.
        tolerance: by how much boxes are moved, in pixels.
    """
    boxes, labels, masks = rows
    slack = torch.zeros_like(boxes[..., 0])
    for signs in ((-1, -1, 1, 1), (1, 1, 1, 1)):
        moved = mask_logits(roi_head, features, boxes + tolerance * boxes.new_tensor(signs), labels)
        slack = torch.maximum(slack, (moved - masks).abs().amax(dim=(2, 3)))
    return {'mask_slack': slack, 'mask_unsure': sizes_in_doubt(roi_head.mask_roi_extractor, boxes)}


@contextmanager
def unpasted(roi_head: Any) -> Iterator[None]:
    """Let mmdet's own ``predict`` return masks as the head gives them, inside the block."""
    def chosen(mask_preds: Tensor, bboxes: Tensor, labels: Tensor, **_: Any) -> Tensor:
        return mask_preds[:, 0] if roi_head.mask_head.class_agnostic else mask_preds[range(len(labels)), labels]

    with override(roi_head.mask_head, '_predict_by_feat_single', chosen):
        yield
