"""Replace DyHead's block, which convolves a map with the offsets of a larger one."""
from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mmexport.ops.sizes import cut
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class DyHeadOffsets(Patch):
    """Take the offsets of the next level's map as mmcv's kernel takes them.

    The offsets of a level move the taps of the next, smaller one, too. mmcv's kernel does not compare their sizes: it reads the memory of a
    sample's offsets from its start, in rows as long as the smaller map's. In plain PyTorch the same cells are taken by their index.

    Checked with compiled mmcv 2.1.0 on a CPU and with mmexport's reference kernel.

    Paper: Dynamic Head, arXiv:2106.08322. Source: mmdet/models/necks/dyhead.py, ``DyHeadBlock.forward``.
    """

    targets = ('mmdet.models.necks.dyhead.DyHeadBlock.forward',)
    upstream = 'mmdet 3.3.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _forward


def _forward(block: Any, levels: Any) -> list[Tensor]:
    results = []
    for number, x in enumerate(levels):
        offset, mask = block.spatial_conv_offset(x).tensor_split([block.offset_dim], dim=1)
        mask = mask.sigmoid()
        parts = [block.spatial_conv_mid(x, offset, mask)]
        if number > 0:
            parts.append(block.spatial_conv_low(levels[number - 1], offset, mask))
        if number + 1 < len(levels):
            smaller = levels[number + 1]
            moved = block.spatial_conv_high(smaller, first_cells(offset, smaller), first_cells(mask, smaller))
            parts.append(F.interpolate(moved, size=x.shape[-2:], mode='bilinear', align_corners=True))
        total = reduce(torch.add, (part * block.scale_attn_module(part) for part in parts))
        results.append(block.task_attn_module(total / len(parts)))
    return results


def first_cells(values: Tensor, like: Tensor) -> Tensor:
    """Return the first cells of `values` (N, C, H, W), in memory's order.

    Returns:
        (N, C, h, w), as large as `like`.
    """
    channels, (height, width) = values.shape[1], like.shape[2:]
    return cut(values.flatten(1), 1, channels * height * width).unflatten(1, (channels, height, width))
