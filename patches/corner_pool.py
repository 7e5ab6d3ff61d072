"""Replace mmcv's corner pooling, for formats without a running maximum."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mmexport.ops.running_max import running_max
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class CornerPool(Patch):
    """Compute running maxima by an operator of the format.

    mmcv compares torch's version and takes ``cummax``, which exporters to ONNX do not know.

    Paper: CornerNet, arXiv:1808.01244. Source: mmcv/ops/corner_pool.py.
    """

    targets = ('mmcv.ops.corner_pool.CornerPool.forward',)
    upstream = 'mmcv 2.1.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda module, x: running_max(x, *module.cummax_dim_flip[module.mode])
