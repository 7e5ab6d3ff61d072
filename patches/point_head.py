"""Replace the choice of points in mmseg's PointRend head: their number follows the size."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class PointHead(Patch):
    """Take as many points as the size has: ``min(height * width, num_points)`` picks one of the two when it is traced.

    Always `num_points` are taken; where the map has fewer pixels its last one is taken again, which refines it to the same value again.

    Source: mmseg/models/decode_heads/point_head.py, ``PointHead.get_points_test``. Paper: PointRend, arXiv:1912.08193.
    """

    targets = ('mmseg.models.decode_heads.point_head.PointHead.get_points_test',)
    upstream = 'mmsegmentation 1.0.0 1.2.2'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _get_points_test


def _get_points_test(head: Any, seg_logits: Tensor, uncertainty_func: Callable[[Tensor], Tensor], cfg: Any) -> tuple[Tensor, Tensor]:
    uncertainty = uncertainty_func(seg_logits)
    height, width = uncertainty.shape[2:]
    count = int(cfg.subdivision_num_points)
    padded = F.pad(uncertainty.flatten(1), (0, count), value=float('-inf'))
    index = padded.topk(count, dim=1)[1].clamp(max=height * width - 1)
    row = index // width
    # Not index % width: ONNX has no remainder by a symbolic size. Nor 1.0 / width: a number with a symbol in it has no form in OpenVINO.
    x = ((index - row * width).float() + 0.5) / width
    y = (row.float() + 0.5) / height
    return index, torch.stack([x, y], dim=2)
