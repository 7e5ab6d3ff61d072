"""Replace the dynamic filters of mmseg's DMNet: no group for each channel of the batch."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class DynamicFilters(Patch):
    """Filter each channel of each image with its own kernel without a group for each: ``groups=batch * channels`` is fixed by a trace.

    A kernel that belongs to one plane is a weighted sum of that plane's shifts, and a sum takes any batch.

    Paper: Dynamic Multi-Scale Filters, ICCV 2019. Source: mmseg/models/decode_heads/dm_head.py, ``DCM.forward``.
    """

    targets = ('mmseg.models.decode_heads.dm_head.DCM.forward',)
    upstream = 'mmsegmentation 1.0.0 1.2.2'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _forward


def _forward(module: Any, x: Tensor) -> Tensor:
    filters = module.filter_gen_conv(F.adaptive_avg_pool2d(x, module.filter_size))
    x = filtered(module.input_redu_conv(x), filters)
    if module.norm is not None:
        x = module.norm(x)
    x = module.activate(x)
    return module.fusion_conv(x) if module.fusion else x


def filtered(x: Tensor, filters: Tensor) -> Tensor:
    """Filter x (N, C, H, W) by (N, C, k, k) -> (N, C, H, W), zeros outside; an even kernel reaches one further up and to the left."""
    side = filters.shape[-1]
    before, after = side // 2, (side - 1) // 2
    padded = F.pad(x, [before, after, before, after])
    height, width = x.shape[2:]
    total = padded[:, :, :height, :width] * filters[:, :, :1, :1]
    for row in range(side):
        for column in range(side):
            if row or column:
                total = total + padded[:, :, row:row + height, column:column + width] * filters[:, :, row:row + 1, column:column + 1]
    return total
