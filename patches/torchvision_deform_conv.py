"""Replace torchvision's deformable convolution by pure PyTorch."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from mmexport.ops.deformable_conv import deform_conv2d, pair
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class TorchvisionDeformableConvolution(Patch):
    """Compute ``torchvision.ops.deform_conv2d`` in pure PyTorch: its op is in no runtime's standard set.

    torch.export has a second reason: with a mask or a bias that torchvision makes itself, the op's fake kernel may see two devices
    (``Unhandled FakeTensor Device Propagation``).

    Source: torchvision/ops/deform_conv.py, ``deform_conv2d``, which ``DeformConv2d.forward`` calls. A model that calls
    ``torch.ops.torchvision.deform_conv2d`` itself is not covered.
    """

    targets = ('torchvision.ops.deform_conv.deform_conv2d',)
    upstream = 'torchvision 0.25.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _convolve


def _convolve(input: Tensor, offset: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = (1, 1), padding: Any = (0, 0),
              dilation: Any = (1, 1), mask: Tensor | None = None) -> Tensor:
    groups = input.shape[1] // weight.shape[1]
    deform_groups = offset.shape[1] // (2 * weight.shape[2] * weight.shape[3])
    return deform_conv2d(input, offset, weight, bias, mask, pair(stride), pair(padding), pair(dilation), int(groups), int(deform_groups))
