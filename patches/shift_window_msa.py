"""Replace the windows of Swin (mmseg, mmdet): the batch stays open."""
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
class ShiftWindowMSA(Patch):
    """Keep the batch out of ``int()``: ``window_reverse`` fixes it at the traced one, and a batch of two comes out mixed.

    ``int(windows.shape[0] / (H * W / ws / ws))`` becomes a constant, and the reshape that follows accepts any other batch without a
    complaint. ``forward`` also crops its padding only if the traced size had some; here it always crops. It numbers the regions of the
    shifted picture by slices, of which those before the last window are empty where there is one window only: AOTInductor of torch
    2.13.0 and 2.14.1 refused such sizes of UPerNet-Swin-T. Here a place's region is computed from its index.

    Sources: mmseg/models/backbones/swin.py and mmdet/models/backbones/swin.py, which hold the same class.
    """

    targets = tuple(f'{package}.models.backbones.swin.ShiftWindowMSA.{method}' for package in ('mmseg', 'mmdet')
                    for method in ('window_reverse', 'forward'))
    upstream = 'mmsegmentation 1.0.0 1.2.2, mmdet 3.0.0 3.3.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _window_reverse if target.endswith('window_reverse') else _forward


def _window_reverse(module: Any, windows: Tensor, H: Any, W: Any) -> Tensor:  # noqa: N803, upstream passes them by name
    side = module.window_size
    channels = windows.shape[-1]
    grid = windows.view(-1, H // side, W // side, side, side, channels)
    return grid.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, H, W, channels)


def _forward(module: Any, query: Tensor, hw_shape: tuple[Any, Any]) -> Tensor:
    batch, length, channels = query.shape
    height, width = hw_shape
    side, shift = module.window_size, module.shift_size
    right, below = padding_to_multiple(width, side), padding_to_multiple(height, side)
    whole = F.pad(query.view(batch, height, width, channels), (0, 0, 0, right, 0, below))
    high, wide = whole.shape[1], whole.shape[2]
    mask = None
    if shift > 0:
        whole = torch.roll(whole, shifts=(-shift, -shift), dims=(1, 2))
        regions = 3 * _regions(high, side, shift, query)[:, None] + _regions(wide, side, shift, query)
        numbers = module.window_partition(regions[None, :, :, None]).view(-1, side * side)
        mask = (numbers.unsqueeze(1) != numbers.unsqueeze(2)).to(query.dtype) * -100.0
    windows = module.window_partition(whole).view(-1, side * side, channels)
    attended = module.w_msa(windows, mask=mask).view(-1, side, side, channels)
    x: Tensor = module.window_reverse(attended, high, wide)
    if shift > 0:
        x = torch.roll(x, shifts=(shift, shift), dims=(1, 2))
    dropped: Tensor = module.drop(x[:, :height, :width].reshape(batch, length, channels))
    return dropped


def _regions(length: Any, side: int, shift: int, like: Tensor) -> Tensor:
    """Return 0 for positions before the last window, 1 for those in it, and 2 for those that the shift brought round."""
    position = torch.arange(length, device=like.device)
    return (position >= length - side).to(torch.int64) + (position >= length - shift).to(torch.int64)
