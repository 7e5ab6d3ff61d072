"""Replace VFNet's computation of offsets, which writes into slices."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mmexport.patching import Patch
from mmexport.registry import PATCHES

# Of the 9 taps of the kernel, y before x: which side of the box (left, top, right, bottom) each offset is; None for the centre.
SIDES = (1, 0, 1, None, 1, 2, None, 0, None, None, None, 2, 3, 0, 3, None, 3, 2)


@PATCHES.register_module()
class StarOffsets(Patch):
    """Compute the offsets of VFNet's star-shaped convolution.

    Upstream writes each into a slice of zeros. torch.export asks of such a slice whether its memory overlaps, and the program then refuses
    maps of one row or column: those of the last level of a pyramid.

    A test compares it with the replaced method.

    Source: mmdet/models/dense_heads/vfnet_head.py, ``VFNetHead.star_dcn_offset``.
    """

    targets = ('mmdet.models.dense_heads.vfnet_head.VFNetHead.star_dcn_offset',)
    upstream = 'mmdet 3.3.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return star_offsets


def star_offsets(head: Any, bbox_pred: Tensor, gradient_mul: float, stride: int) -> Tensor:
    """Return offsets (N, 18, h, w) from distances (N, 4, h, w): negative to the left and the top."""
    # Gradients are not needed, so that `gradient_mul` changes nothing.
    distances = bbox_pred / stride
    sides = (-distances[:, 0], -distances[:, 1], distances[:, 2], distances[:, 3])
    centre = torch.zeros_like(sides[0])
    offsets = torch.stack([centre if side is None else sides[side] for side in SIDES], dim=1)
    return offsets - head.dcn_base_offset.type_as(bbox_pred)
