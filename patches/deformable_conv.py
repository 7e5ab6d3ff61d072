"""Replace mmcv's deformable convolutions by pure PyTorch."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from mmexport.ops.deformable_conv import deform_conv2d, pair
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class DeformableConvolution(Patch):
    """Compute deformable convolution (DCN, DCNv2) in pure PyTorch.

    mmcv's kernel allocates an output and fills it where no tracer sees it. The layer ``DeformConv2d`` pads maps that are smaller than the
    kernel, for an assertion in its CUDA code, and cuts the result; a branch on a size that the result does not need.

    Compared with compiled mmcv 2.1.0 on a CPU, with mmexport's reference kernel, and with ordinary convolution.

    Sources: mmcv/ops/deform_conv.py, ``deform_conv2d`` and ``DeformConv2d.forward``;
    mmcv/ops/modulated_deform_conv.py, ``modulated_deform_conv2d``.
    """

    targets = ('mmcv.ops.deform_conv.deform_conv2d', 'mmcv.ops.deform_conv.DeformConv2d.forward',
               'mmcv.ops.modulated_deform_conv.modulated_deform_conv2d')
    upstream = 'mmcv 2.0.1 2.1.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _modulated if 'modulated' in target else _layer if target.endswith('forward') else _plain


def _layer(module: Any, x: Tensor, offset: Tensor) -> Tensor:
    return _plain(x, offset, module.weight, module.stride, module.padding, module.dilation, module.groups, module.deform_groups)


def _plain(x: Tensor, offset: Tensor, weight: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
           deform_groups: int = 1, bias: bool = False, im2col_step: int = 32) -> Tensor:
    assert not bias, 'upstream has none either'
    return deform_conv2d(x, offset, weight, None, None, pair(stride), pair(padding), pair(dilation), groups, deform_groups)


def _modulated(x: Tensor, offset: Tensor, mask: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
               dilation: Any = 1, groups: int = 1, deform_groups: int = 1) -> Tensor:
    return deform_conv2d(x, offset, weight, bias, mask, pair(stride), pair(padding), pair(dilation), groups, deform_groups)
