"""Replace the padding of mmseg's ISANet head: it follows the size of the input."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mmexport.ops.sizes import padding_to_multiple
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class InterlacedAttention(Patch):
    """Pad by what the size needs: ``math.ceil`` fixes the number of groups of the traced size, and ``if pad_h > 0`` whether to pad.

    Paper: Interlaced Sparse Self-Attention, arXiv:1907.12273. Source: mmseg/models/decode_heads/isa_head.py, ``ISAHead.forward``.
    """

    targets = ('mmseg.models.decode_heads.isa_head.ISAHead.forward',)
    upstream = 'mmsegmentation 1.0.0 1.2.2'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _forward


def _forward(head: Any, inputs: Any) -> Tensor:
    x = residual = head.in_conv(head._transform_inputs(inputs))
    height, width = x.shape[2:]
    high, wide = (padding_to_multiple(side, step) for side, step in zip((height, width), head.down_factor, strict=True))
    # Half of what is missing, from numbers that are never negative: torch takes the size out of `wide // 2`, and the integer division of
    # ONNX and OpenVINO rounds a negative one up.
    top, left = (height + high + height) // 2 - height, (width + wide + width) // 2 - width
    x = F.pad(x, [left, wide - left, top, high - top])
    x = head.local_relation(_by_cell(head.global_relation(_by_position(x, head.down_factor)), x, head.down_factor))
    x = _from_cells(x, residual, head.down_factor, height + high, width + wide)
    x = x[:, :, top:top + height, left:left + width]
    return head.cls_seg(head.out_conv(torch.cat([x, residual], dim=1)))  # type: ignore[no-any-return]


def _by_position(x: Tensor, step: tuple[int, int]) -> Tensor:
    """Reshape (N, C, H, W) -> (N * h * w, C, H / h, W / w): one picture for each position in a cell of `step` (h, w)."""
    cells = x.unflatten(3, (-1, step[1])).unflatten(2, (-1, step[0]))
    return cells.permute(0, 3, 5, 1, 2, 4).flatten(0, 2)


def _by_cell(far: Tensor, x: Tensor, step: tuple[int, int]) -> Tensor:
    """Reshape the output of `_by_position` -> (N * H / h * W / w, C, h, w): one picture for each cell."""
    return far.unflatten(0, (x.shape[0], *step)).permute(0, 4, 5, 3, 1, 2).flatten(0, 2)


def _from_cells(near: Tensor, like: Tensor, step: tuple[int, int], height: Any, width: Any) -> Tensor:
    """Reshape the output of `_by_cell` -> (N, C, H, W)."""
    cells = near.unflatten(0, (like.shape[0], height // step[0], width // step[1]))
    return cells.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)
