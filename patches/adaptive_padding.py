"""Replace AdaptivePadding (mmseg, mmdet): the padding follows the size of the input."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from mmexport.ops.sizes import same_padding
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class AdaptivePadding(Patch):
    """Pad by what the size needs: ``math.ceil`` fixes the padding of the traced size, and ``if pad_h > 0`` fixes whether to pad.

    Used by every patch embedding of Swin, ViT and MiT. Sources: mmseg/models/utils/embed.py and
    mmdet/models/layers/transformer/utils.py, which hold the same class.
    """

    targets = tuple(f'{owner}.AdaptivePadding.{method}' for owner in ('mmseg.models.utils.embed', 'mmdet.models.layers.transformer.utils')
                    for method in ('get_pad_shape', 'forward'))
    upstream = 'mmsegmentation 1.0.0 1.2.2, mmdet 3.0.0 3.3.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _forward if target.endswith('forward') else _get_pad_shape


def _get_pad_shape(module: Any, input_shape: Any) -> tuple[Any, ...]:
    return tuple(same_padding(*axis) for axis in zip(input_shape, module.kernel_size, module.stride, module.dilation, strict=True))


def _forward(module: Any, x: Tensor) -> Tensor:
    high, wide = module.get_pad_shape(x.size()[-2:])
    if module.padding == 'corner':
        return F.pad(x, [0, wide, 0, high])
    return F.pad(x, [wide // 2, wide - wide // 2, high // 2, high - high // 2])
