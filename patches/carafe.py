"""Replace mmcv's CARAFE by pure PyTorch, and how mmdet's FPN_CARAFE adds maps of other sizes."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mmexport.ops.sizes import cut
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class Carafe(Patch):
    """Add up the weighted neighbours of each cell, one neighbour after the other.

    mmcv's kernel, which exists for CUDA alone, fills an output where no tracer sees it.
    Compared with mmexport's reference kernel, which is held against the definition, written as loops.

    Source: mmcv/ops/carafe.py. Paper: CARAFE, arXiv:1905.02188.
    """

    targets = ('mmcv.ops.carafe.CARAFE.forward', 'mmcv.ops.carafe.CARAFENaive.forward', 'mmcv.ops.carafe.CARAFEPack.feature_reassemble')
    upstream = 'mmcv 2.1.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        if 'Pack' in target:
            return lambda module, x, mask: reassembled(x, mask, module.up_kernel, module.up_group, module.scale_factor)
        return lambda module, features, masks: reassembled(features, masks, module.kernel_size, module.group_size, module.scale_factor)


@PATCHES.register_module()
class FpnCarafeSizes(Patch):
    """Cut the upper map to the size of the lower one, whatever both are.

    mmdet asks whether they are equal: a trace keeps the answer of its own size.

    Source: mmdet/models/necks/fpn_carafe.py.
    """

    targets = ('mmdet.models.necks.fpn_carafe.FPN_CARAFE.tensor_add',)
    upstream = 'mmdet 3.3.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda module, a, b: a + cut(cut(b, 2, a.shape[2]), 3, a.shape[3])


def reassembled(features: Tensor, masks: Tensor, kernel: int, groups: int, scale: int) -> Tensor:
    """Return the weighted sums of neighbours (N, C, H * scale, W * scale).

    Args:
        features: (N, C, H, W); outside is zero.
        masks: (N, groups * kernel ** 2, H * scale, W * scale), the weights.
    """
    reach, height, width = kernel // 2, masks.shape[2], masks.shape[3]
    share = features.shape[1] // groups
    larger = F.interpolate(F.pad(features, (reach, reach, reach, reach)), scale_factor=float(scale), mode='nearest')
    total = None
    for tap in range(kernel ** 2):
        row, column = divmod(tap, kernel)
        near = larger[:, :, row * scale:row * scale + height, column * scale:column * scale + width]
        weights = masks[:, tap::kernel ** 2]
        # Of one group the weights are the same for all channels.
        part = near * (weights if groups == 1 else weights.repeat_interleave(share, dim=1))
        total = part if total is None else total + part
    assert isinstance(total, torch.Tensor)
    return total
