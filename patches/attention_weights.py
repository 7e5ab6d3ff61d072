"""Replace calls of nn.MultiheadAttention whose attention weights that the caller discards."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from mmexport.patching import Patch
from mmexport.registry import PATCHES
from mmexport.utils.override import override


@PATCHES.register_module()
class AttentionWeights(Patch):
    """Do not ask ``nn.MultiheadAttention`` for the attention weights that the caller drops.

    mmcv and mmseg take ``self.attn(...)[0]`` and leave ``need_weights`` at True, which makes torch write out the (Q, K) weights of every
    head and their mean. Without them it calls ``scaled_dot_product_attention``, whose fused kernels never hold them: faster and smaller,
    and the same sum in another order.

    Source: torch/nn/functional.py, ``multi_head_attention_forward``.
    """

    targets = ('mmcv.cnn.bricks.transformer.MultiheadAttention.forward',
               'mmseg.models.backbones.mit.EfficientMultiheadAttention.forward')
    upstream = 'mmcv 2.0.1 2.1.0, mmsegmentation 1.0.0 1.2.2'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
            with override(module.attn, 'forward', partial(module.attn.forward, need_weights=False)):
                return original(module, *args, **kwargs)
        return forward
