"""Convert the detections of a file to mmdet's results in the original pictures."""
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ...checker.kinds.detections import NAMES
from ...errors import InputError
from .pasting import pasted

if TYPE_CHECKING:
    from mmengine.structures import InstanceData


def instance_data(outputs: Mapping[str, Any], metainfos: Sequence[Mapping[str, Any]], mask_threshold: float = 0.5) -> list[InstanceData]:
    """Return for each picture what mmdet's ``predict`` gives with ``rescale=True``: `bboxes`, `scores`, `labels`, and `masks` if any.

    mmdet's evaluators and visualizers take it as the ``pred_instances`` of a data sample.

    Args:
        outputs: tensors or arrays by name, as the manifest names them: `boxes` (N, K, 4), `scores`, `labels`, `num`, and maybe `masks`
            (N, K, h, w): logits in the cells of their boxes, or uint8 at the size of the input. The latter are enlarged as they are, and
            mmdet enlarges probabilities before it compares them: where a picture was resized, edges differ by about a pixel of the input.
        metainfos: of each picture the metainfo of its data sample: ``ori_shape`` (height, width) and ``scale_factor`` (width, height), and
            where the pipeline centres the picture in its padding, ``border`` (top, bottom, left, right).
        mask_threshold: the config's ``test_cfg.rcnn.mask_thr_binary``; below zero, masks are uint8 from 0 to 255, as mmdet's then are.

    Raises:
        InputError: an output or a part of a metainfo is missing, or they are not as many.
    """
    from mmengine.structures import InstanceData
    tensors = {name: torch.as_tensor(value) for name, value in outputs.items()}
    missing = [name for name in NAMES if name not in tensors]
    if missing:
        raise InputError(f'outputs {", ".join(missing)} are missing; instance_data takes those of detectors: {", ".join(NAMES)}')
    if len(metainfos) != len(tensors['num']):
        raise InputError(f'there are {len(tensors["num"])} pictures in the outputs and {len(metainfos)} metainfos')
    results = []
    for number, (meta, count) in enumerate(zip(metainfos, tensors['num'].tolist(), strict=True)):
        if lacking := [key for key in ('ori_shape', 'scale_factor') if key not in meta]:
            raise InputError(f'the metainfo of picture {number} has no {" and no ".join(lacking)}: give that of its data sample')
        boxes = tensors['boxes'][number, :count].float()
        if 'border' in meta:
            boxes = boxes - boxes.new_tensor([float(meta['border'][2]), float(meta['border'][0])]).repeat(2)
        boxes = boxes / boxes.new_tensor([float(factor) for factor in meta['scale_factor']]).repeat(2)
        instances = InstanceData(bboxes=boxes, scores=tensors['scores'][number, :count].float(), labels=tensors['labels'][number, :count])
        if 'masks' in tensors:
            masks = tensors['masks'][number, :count]
            instances.masks = _in_picture(masks, boxes, meta['ori_shape'], mask_threshold) if masks.is_floating_point() else \
                _resized(masks, meta['ori_shape'], meta['scale_factor'])
        results.append(instances)
    return results


def _in_picture(logits: Tensor, boxes: Tensor, shape: Sequence[int], threshold: float) -> Tensor:
    """Return masks of the size of the picture (K, H, W), one after the other, for many do not fit into memory together."""
    masks = torch.zeros(len(logits), *shape[:2], dtype=torch.bool if threshold >= 0 else torch.uint8, device=boxes.device)
    for row, mask in enumerate(logits):
        whole = pasted(mask[None].float().sigmoid(), boxes[row:row + 1], int(shape[0]), int(shape[1]))[0]
        masks[row] = whole >= threshold if threshold >= 0 else (whole * 255).to(torch.uint8)
    return masks


def _resized(masks: Tensor, shape: Sequence[int], factors: Sequence[float]) -> Tensor:
    """Return masks (K, h, w) of the input at the size of the picture (K, H, W)."""
    size = [math.ceil(side / float(factor)) for side, factor in zip(masks.shape[1:], reversed(factors), strict=True)]
    resized = torch.zeros(len(masks), *shape[:2], dtype=torch.bool, device=masks.device)
    for row, mask in enumerate(masks):
        whole = F.interpolate(mask[None, None].float(), size=size, mode='bilinear')[0, 0, :shape[0], :shape[1]] >= 0.5
        resized[row, :whole.shape[0], :whole.shape[1]] = whole
    return resized
