"""Replace torchvision's suppression of boxes and its RoIAlign by pure PyTorch."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mmexport.ops.deformable_conv import pair
from mmexport.ops.nms import first_kept
from mmexport.ops.ranking import ranked
from mmexport.ops.roi_align import Settings, roi_align
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class TorchvisionNMS(Patch):
    """Compute ``torchvision.ops.nms`` and ``batched_nms`` in pure PyTorch: the op is in no runtime's standard set.

    Of equal scores the first counts as better; torchvision leaves that open. With many boxes ``batched_nms`` suppresses class by class in
    Python; here boxes of different classes are always moved apart, as it does with few, so that overlaps are rounded otherwise.

    Source: torchvision/ops/boxes.py. A model that calls ``torch.ops.torchvision.nms`` itself is not covered.
    """

    targets = ('torchvision.ops.boxes.nms', 'torchvision.ops.boxes.batched_nms')
    upstream = 'torchvision 0.25.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _batched if target.endswith('batched_nms') else _suppressed


@PATCHES.register_module()
class TorchvisionRoIAlign(Patch):
    """Compute ``torchvision.ops.roi_align`` in pure PyTorch, or by the operator that a format has.

    Source: torchvision/ops/roi_align.py. A model that calls ``torch.ops.torchvision.roi_align`` itself is not covered.
    """

    targets = ('torchvision.ops.roi_align.roi_align',)
    upstream = 'torchvision 0.25.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _aligned


def _suppressed(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    order = ranked(scores[None])[0]
    rows = boxes.index_select(0, order)[None]
    index, count = first_kept(rows, torch.ones_like(rows[..., 0], dtype=torch.bool), iou_threshold, boxes.shape[0])
    kept = index[0][torch.arange(index.shape[1], device=index.device) < count]
    return order.index_select(0, kept)


def _batched(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    # Without boxes there is no largest coordinate.
    largest = torch.cat([boxes.flatten(), boxes.new_zeros(1)]).max()
    return _suppressed(boxes + (idxs.to(boxes) * (largest + 1))[:, None], scores, iou_threshold)


def _aligned(input: Tensor, boxes: Tensor | Sequence[Tensor], output_size: Any, spatial_scale: float = 1.0, sampling_ratio: int = -1,
             aligned: bool = False) -> Tensor:
    rois = boxes if isinstance(boxes, Tensor) else torch.cat([
        torch.cat([torch.full_like(rows[:, :1], number), rows], dim=1) for number, rows in enumerate(boxes)])
    settings = Settings(pair(output_size), (float(spatial_scale),), max(int(sampling_ratio), 0), bool(aligned))
    return roi_align([input], rois, torch.zeros_like(rois[:, 0]).long(), settings)
