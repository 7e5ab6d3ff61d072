from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mmexport.ops.sizes import at_most
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class PointHead(Patch):
    """Take as many points as the size has: ``min(height * width, num_points)`` picks one of the two when it is traced.

    Source: mmseg/models/decode_heads/point_head.py, ``PointHead.get_points_test``. Paper: PointRend, arXiv:1912.08193.
    """

    targets = ('mmseg.models.decode_heads.point_head.PointHead.get_points_test',)
    upstream = 'mmsegmentation 1.2.2'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _get_points_test


def _get_points_test(head: Any, seg_logits: Tensor, uncertainty_func: Callable[[Tensor], Tensor], cfg: Any) -> tuple[Tensor, Tensor]:
    uncertainty = uncertainty_func(seg_logits)
    height, width = uncertainty.shape[2:]
    count = at_most(height * width, int(cfg.subdivision_num_points))
    index = uncertainty.flatten(1).topk(count, dim=1)[1]
    step_x, step_y = 1.0 / width, 1.0 / height
    row = index // width
    # Not index % width: ONNX has no remainder by a symbolic size.
    x = step_x / 2.0 + (index - row * width).float() * step_x
    y = step_y / 2.0 + row.float() * step_y
    return index, torch.stack([x, y], dim=2)
