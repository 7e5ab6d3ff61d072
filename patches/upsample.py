"""Replace mmseg's Upsample: the result follows the size of the input."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from mmexport.ops.sizes import scaled
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class Upsample(Patch):
    """Scale the size that is there: ``int(t * scale_factor)`` fixes the traced size.

    HRNet and FPN heads resize again afterwards, so nothing fails: OCRNet and PointRend are silently wrong at every other size.

    Source: mmseg/models/utils/wrappers.py.
    """

    targets = ('mmseg.models.utils.wrappers.Upsample.forward',)
    upstream = 'mmsegmentation 1.0.0 1.2.2'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(module: Any, x: Tensor) -> Tensor:
            size = module.size
            if not size:
                factors = module.scale_factor if isinstance(module.scale_factor, tuple) else (module.scale_factor,) * 2
                size = [scaled(side, factor) for side, factor in zip(x.shape[-2:], factors, strict=True)]
            return F.interpolate(x, size, None, module.mode, module.align_corners)

        return forward
