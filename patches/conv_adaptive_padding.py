"""Replace mmcv's Conv2dAdaptivePadding: the padding follows the size of the input."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from mmexport.ops.sizes import same_padding
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class ConvAdaptivePadding(Patch):
    """Pad as `AdaptivePadding` does, for a convolution that pads for itself: MobileNetV3 and EfficientNet.

    Source: mmcv/cnn/bricks/conv2d_adaptive_padding.py, ``Conv2dAdaptivePadding``.
    """

    targets = ('mmcv.cnn.bricks.conv2d_adaptive_padding.Conv2dAdaptivePadding.forward',)
    upstream = 'mmcv 2.0.1 2.1.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _forward


def _forward(module: Any, x: Tensor) -> Tensor:
    high, wide = (same_padding(*axis) for axis in zip(x.shape[-2:], module.kernel_size, module.stride, module.dilation, strict=True))
    # Padding that does not depend on the input's size is an int, mostly 0.
    if not (isinstance(high, int) and isinstance(wide, int) and high == wide == 0):
        x = F.pad(x, [wide // 2, wide - wide // 2, high // 2, high - high // 2])
    return F.conv2d(x, module.weight, module.bias, module.stride, module.padding, module.dilation, module.groups)
