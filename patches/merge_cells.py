"""Replace how NAS-FPN brings two maps to one size."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from mmexport.ops.sizes import ceil_div
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class MergeCells(Patch):
    """Pool a map by the ratio of its size to another one's.

    mmcv asks whether the sides divide, and pads by ``math.ceil(h / target_h)``: under torch.export that is a formula of floats that no
    format holds, and the kernel of ``max_pool2d`` is a constant. Here the ratio is a whole number, the padding is what is left, and windows
    are dimensions of their own, so that the ratio may change with the size.

    Source: mmcv/ops/merge_cells.py, ``BaseMergeCell._resize``.
    """

    targets = ('mmcv.ops.merge_cells.BaseMergeCell._resize',)
    upstream = 'mmcv 2.1.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _resize


def _resize(cell: Any, x: Tensor, size: Sequence[Any]) -> Tensor:
    height, width = x.shape[-2:]
    if height == size[0] and width == size[1]:
        return x
    if height < size[0] or (height == size[0] and width < size[1]):
        return F.interpolate(x, size=(size[0], size[1]), mode=cell.upsample_mode)
    kernel = [ceil_div(side, target) for side, target in zip((height, width), size, strict=True)]
    # What upstream pads with zeros, half of it on each side; nothing where the sides divide.
    bottom, right = (times * target - side for times, target, side in zip(kernel, size, (height, width), strict=True))
    padded = F.pad(x, (right // 2, right - right // 2, bottom // 2, bottom - bottom // 2))
    return padded.reshape(*x.shape[:2], size[0], kernel[0], size[1], kernel[1]).amax((3, 5))
