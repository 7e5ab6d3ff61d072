"""Replace the position embedding of mmseg's ViT: it is resized at every size."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from mmexport.ops.sizes import equal
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class VitPositionEmbedding(Patch):
    """Resize the position embedding always: a trace keeps the branch that the traced size took.

    Resizing to the size that it has changes no bit. Upstream skips the resize whenever the number of tokens is that of training,
    whatever their aspect (256x1024 for a model of 512x512); the target size below reproduces that too.

    Source: mmseg/models/backbones/vit.py, ``VisionTransformer._pos_embeding``.
    """

    targets = ('mmseg.models.backbones.vit.VisionTransformer._pos_embeding',)
    upstream = 'mmsegmentation 1.0.0 1.2.2'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _pos_embeding


def _pos_embeding(module: Any, patched_img: Tensor, hw_shape: tuple[Any, Any], pos_embed: Tensor) -> Tensor:
    high, wide = (side // module.patch_size for side in module.img_size)
    if pos_embed.shape[1] != high * wide + 1:
        raise ValueError(f'pos_embed has {pos_embed.shape[1]} tokens, {high * wide + 1} were expected for {module.img_size}')
    same = equal(hw_shape[0] * hw_shape[1], high * wide)
    size = (same * high + (1 - same) * hw_shape[0], same * wide + (1 - same) * hw_shape[1])
    resized = module.resize_pos_embed(pos_embed, size, (high, wide), module.interpolate_mode)
    return module.drop_after_pos(patched_img + resized)  # type: ignore[no-any-return]
