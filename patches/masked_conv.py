"""Replace mmcv's masked convolution by pure PyTorch."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class MaskedConv(Patch):
    """Compute the convolution everywhere, and keep what lies under the mask.

    mmcv's kernel, which exists for CUDA alone, computes a list of places whose length depends on the picture. It takes one picture, and
    reads neither dilation nor groups.
    Compared with mmexport's reference kernel, which is held against an ordinary convolution.

    Source: mmcv/ops/masked_conv.py; used by Guided Anchoring, arXiv:1901.03278.
    """

    targets = ('mmcv.ops.masked_conv.MaskedConv2d.forward',)
    upstream = 'mmcv 2.1.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(layer: Any, input: Tensor, mask: Tensor | None = None) -> Tensor:
            return original(layer, input) if mask is None else masked(input, mask, layer)
        return forward


def masked(feature: Tensor, mask: Tensor, layer: Any) -> Tensor:
    """Return the convolution (N, C, H, W) of `layer`, zero where `mask` (N, H, W) is not positive."""
    answer = F.conv2d(feature, layer.weight, layer.bias, stride=1, padding=layer.padding)
    return torch.where((mask > 0)[:, None], answer, torch.zeros_like(answer))
