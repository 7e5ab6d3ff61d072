"""Compute mmcv's kernel of box overlaps, from its definition. Signature as in mmcv/ops/csrc/pytorch/pybind.cpp."""
from __future__ import annotations

import torch
from torch import Tensor

UNION, FIRST = range(2)


def bbox_overlaps(bboxes1: Tensor, bboxes2: Tensor, ious: Tensor, mode: int, aligned: bool, offset: int) -> None:
    """Write the overlaps of `bboxes1` (M, 4) with `bboxes2` (K, 4) into `ious`.

    Args:
        ious: (M, K); with `aligned` (M,), each box with that of the same index.
        mode: `UNION` divides the intersection by the union, `FIRST` by the area of the first box.
        offset: what is added to widths and heights.
    """
    first = bboxes1 if aligned else bboxes1[:, None]
    sides = (torch.minimum(first[..., 2:], bboxes2[..., 2:]) - torch.maximum(first[..., :2], bboxes2[..., :2]) + offset).clamp(min=0)
    shared = sides.prod(-1)
    area = (first[..., 2:] - first[..., :2] + offset).prod(-1)
    others = (bboxes2[..., 2:] - bboxes2[..., :2] + offset).prod(-1)
    whole = area if mode == FIRST else area + others - shared
    ious.copy_(shared / whole.clamp(min=offset) if offset else shared / whole)


COMPARED = 'compiled mmcv 2.1.0'
KERNELS = {'bbox_overlaps': bbox_overlaps}
