"""Replace mmcv's RoIPool by pure PyTorch."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mmexport.ops.roi_pool import PoolSettings, roi_pool
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class RoIPool(Patch):
    """Take the largest cell of each bin, in a loop.

    mmcv's kernel, which exists for CUDA alone, fills an output where no tracer sees it.
    Compared with mmexport's reference kernel, which is held against the definition, written as loops.

    Source: mmcv/ops/roi_pool.py. Paper: Fast R-CNN, arXiv:1504.08083.
    """

    targets = ('mmcv.ops.roi_pool.RoIPool.forward',)
    upstream = 'mmcv 2.1.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _pooled


def _pooled(layer: Any, feature: Tensor, rois: Tensor) -> Tensor:
    settings = PoolSettings(tuple(layer.output_size), (float(layer.spatial_scale),))
    return roi_pool([feature], rois, torch.zeros_like(rois[:, 0]).long(), settings)
