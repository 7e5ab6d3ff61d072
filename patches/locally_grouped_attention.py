"""Replace the windows of mmseg's Twins: their padding follows the size of the input."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mmexport.ops.sizes import ceil_div
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class LocallyGroupedAttention(Patch):
    """Mark the padding of windows by comparing positions: a slice from ``-pad`` on holds for the traced remainder of a size only.

    ``mask[:, -pad_b:, :].fill_(1)`` and ``if pad_r > 0`` ask which remainder a size leaves, and torch.export refuses every size that
    leaves another one. A consequence of upstream's slice is kept: without padding in one direction ``-0:`` marks
    every position, so that padding in the other direction is attended to like the picture.

    Source: mmseg/models/backbones/twins.py (Twins-SVT).
    """

    targets = ('mmseg.models.backbones.twins.LocallyGroupedSelfAttention.forward',)
    upstream = 'mmsegmentation 1.0.0 1.2.2'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _forward


def _forward(module: Any, x: Tensor, hw_shape: tuple[Any, Any]) -> Tensor:
    batch, length, channels = x.shape
    height, width = hw_shape
    side, heads = module.window_size, module.num_heads
    down, across = ceil_div(height, side), ceil_div(width, side)
    whole = F.pad(x.view(batch, height, width, channels), (0, 0, 0, across * side - width, 0, down * side - height))
    windows = whole.reshape(batch, down, side, across, side, channels).transpose(2, 3)

    qkv = module.qkv(windows).reshape(batch, down * across, side * side, 3, heads, channels // heads).permute(3, 0, 1, 4, 2, 5)
    attention = (qkv[0] @ qkv[1].transpose(-2, -1)) * module.scale
    rows, columns = _padding_mask(down * side, height, x.device), _padding_mask(across * side, width, x.device)
    attention = attention + _attention_mask(rows, columns, side).unsqueeze(2)
    attention = module.attn_drop(attention.softmax(dim=-1))

    x = (attention @ qkv[2]).transpose(2, 3).reshape(batch, down, across, side, side, channels)
    x = x.transpose(2, 3).reshape(batch, down * side, across * side, channels)[:, :height, :width]
    answer: Tensor = module.proj_drop(module.proj(x.reshape(batch, length, channels)))
    return answer


def _padding_mask(whole: Any, size: Any, device: torch.device) -> Tensor:
    """Return which of `whole` positions are padding, as upstream does: all of them if none is."""
    padding = torch.arange(whole, device=device) >= size
    return padding | ~padding.any()


def _attention_mask(rows: Tensor, columns: Tensor, side: int) -> Tensor:
    """Return -1000 between marked and unmarked positions, (1, windows, side * side, side * side)."""
    marked = rows.view(-1, 1, side, 1) | columns.view(1, -1, 1, side)
    marked = marked.reshape(1, -1, side * side)
    return (marked.unsqueeze(2) != marked.unsqueeze(3)) * -1000.0
