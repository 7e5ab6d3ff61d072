"""Replace the fusion of mmseg's SegFormer head: channels are mixed before maps are enlarged."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class FusionBeforeUpsampling(Patch):
    """Mix channels before enlarging: SegFormer's head enlarges four maps, joins them and then mixes each pixel's channels.

    A 1x1 convolution and an interpolation of pixels are linear and act on different axes, so that either may come first. Mixed small,
    the maps cost a third of the multiplications, and the joined one, four times as large as any other in the model, is not made.
    This patch only saves time.

    Source: mmseg/models/decode_heads/segformer_head.py.
    """

    targets = ('mmseg.models.decode_heads.segformer_head.SegformerHead.forward',)
    upstream = 'mmsegmentation 1.0.0 1.2.2'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        from mmseg.models.utils import resize

        def forward(head: Any, inputs: Any) -> Any:
            fusion = head.fusion_conv
            if not mixes_channels_alone(fusion):
                return original(head, inputs)
            maps = head._transform_inputs(inputs)
            weights = fusion.conv.weight.split(head.channels, dim=1)
            total: Tensor | None = None
            for level, conv, weight in zip(maps, head.convs, weights, strict=True):
                mixed = F.conv2d(conv(level), weight)
                if total is not None:
                    mixed = resize(mixed, size=maps[0].shape[2:], mode=head.interpolate_mode, align_corners=head.align_corners)
                total = mixed if total is None else total + mixed
            if fusion.conv.bias is not None:
                total = total + fusion.conv.bias[:, None, None]
            if fusion.with_norm:
                total = fusion.norm(total)
            return head.cls_seg(fusion.activate(total) if fusion.with_activation else total)

        return forward


def mixes_channels_alone(module: Any) -> bool:
    """Return whether a ConvModule is a plain 1x1 convolution. A norm and an activation may follow."""
    conv = module.conv
    return (tuple(module.order) == ('conv', 'norm', 'act') and tuple(conv.kernel_size) == (1, 1) and tuple(conv.stride) == (1, 1)
            and tuple(conv.padding) == (0, 0) and conv.groups == 1 and type(conv).__name__ == 'Conv2d')
