"""Replace the fusion block of mmseg's DPT head: maps are resized at every size."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class FusionShapes(Patch):
    """Resize the second map of DPT's fusion at every size: upstream does so only where the two maps differ in size.

    ``if x.shape != inputs[1].shape`` is decided once, for the traced size: a picture whose map of stride 16 has an odd number of rows then
    fails, or is refused. A bilinear resize to the size that a map has already returns the same numbers.

    Source: mmseg/models/decode_heads/dpt_head.py, FeatureFusionBlock.
    """

    targets = ('mmseg.models.decode_heads.dpt_head.FeatureFusionBlock.forward',)
    upstream = 'mmsegmentation 1.0.0 1.2.2'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        from mmseg.models.utils import resize

        def forward(block: Any, *inputs: Any) -> Any:
            if len(inputs) == 2:
                inputs = inputs[0], resize(inputs[1], size=inputs[0].shape[2:], mode='bilinear', align_corners=False)
            return original(block, *inputs)

        return forward
