"""Replace how SOLO's heads halve the first map and enlarge the last."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class SoloFeatures(Patch):
    """Make means of 2 x 2 cells, as a bilinear resize by one half does.

    Under torch.export a size times 0.5 is a formula of floats, which exporters do not simplify: the program is fixed to one size.

    Source: mmdet/models/dense_heads/solo_head.py, ``SOLOHead.resize_feats``.
    """

    targets = ('mmdet.models.dense_heads.solo_head.SOLOHead.resize_feats',)
    upstream = 'mmdet 3.3.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _resize_feats


def _resize_feats(head: Any, x: Sequence[Tensor]) -> list[Tensor]:
    return [F.avg_pool2d(x[0], 2), *x[1:-1], F.interpolate(x[-1], size=x[-2].shape[-2:], mode='bilinear')]
