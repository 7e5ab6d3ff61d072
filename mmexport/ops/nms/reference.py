"""Compute mmcv's kernels of non-maximum suppression, from their definition.

Nothing here is shared with a patch or a form: these kernels judge them. Boxes are (N, 4), x1 y1 x2 y2; `offset` is added to widths and
heights (1 where coordinates count pixels). Boxes of equal score keep their order; mmcv leaves their order open.

Papers: greedy suppression as in Fast R-CNN, arXiv:1504.08083; Soft-NMS, arXiv:1704.04503; groups of suppressed boxes as in Prime Sample
Attention, arXiv:1904.04821. Signatures as in mmcv/ops/csrc/pytorch/pybind.cpp.
"""
from __future__ import annotations

import torch
from torch import Tensor

# Soft-NMS's ways to lower a score, by mmcv's number.
NAIVE, LINEAR, GAUSSIAN = range(3)


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Return the indices of the boxes that stay, best score first."""
    order = scores.argsort(descending=True, stable=True)
    waiting = order
    kept = []
    while len(waiting):
        best, waiting = waiting[0], waiting[1:]
        kept.append(best)
        # An overlap of NaN (two boxes without area) suppresses nothing.
        waiting = waiting[~(overlap(boxes[best], boxes[waiting], offset) > iou_threshold)]
    return torch.stack(kept) if kept else order


def softnms(boxes: Tensor, scores: Tensor, dets: Tensor, iou_threshold: float, sigma: float, min_score: float, method: int,
            offset: int) -> Tensor:
    """Write boxes with lowered scores into `dets` (N, 5), the best first; return their indices.

    A box stays while its score is at least `min_score`; the very first one always stays.
    """
    waiting, left = torch.arange(len(scores)), scores.clone()
    chosen: list[Tensor] = []
    while len(waiting):
        first = int(left.argmax())
        best = waiting[first]
        dets[len(chosen)] = torch.cat((boxes[best], left[first:first + 1]))
        chosen.append(best)
        others = torch.arange(len(waiting)) != first
        waiting, left = waiting[others], left[others]
        shares = overlap(boxes[best], boxes[waiting], offset)
        if method == GAUSSIAN:
            left = left * torch.exp(-(shares * shares) / sigma)
        else:
            left = torch.where(shares >= iou_threshold, left * (1 - shares) if method == LINEAR else torch.zeros_like(left), left)
        stays = ~(left < min_score)
        waiting, left = waiting[stays], left[stays]
    return torch.stack(chosen) if chosen else waiting


def nms_match(dets: Tensor, iou_threshold: float) -> list[list[int]]:
    """Return a group of indices for each box that stays: it, and those that it suppresses.

    Args:
        dets: (N, 5), boxes and scores.
    """
    waiting = dets[:, 4].argsort(descending=True, stable=True)
    groups = []
    while len(waiting):
        best, waiting = waiting[0], waiting[1:]
        suppressed = overlap(dets[best, :4], dets[waiting, :4], 0) >= iou_threshold
        groups.append([int(best), *map(int, waiting[suppressed])])
        waiting = waiting[~suppressed]
    return groups


def overlap(box: Tensor, boxes: Tensor, offset: int) -> Tensor:
    """Return the intersection of `box` (4,) with each of `boxes` (N, 4) over their union -> (N,)."""
    sides = (torch.minimum(box[2:], boxes[:, 2:]) - torch.maximum(box[:2], boxes[:, :2]) + offset).clamp(min=0)
    shared = sides[:, 0] * sides[:, 1]
    area = (box[2] - box[0] + offset) * (box[3] - box[1] + offset)
    areas = (boxes[:, 2] - boxes[:, 0] + offset) * (boxes[:, 3] - boxes[:, 1] + offset)
    return shared / (area + areas - shared)


COMPARED = 'compiled mmcv 2.1.0'
KERNELS = {'nms': nms, 'softnms': softnms, 'nms_match': nms_match}
