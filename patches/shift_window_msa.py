"""Replace the windows of Swin (mmseg, mmdet): the batch stays open."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from mmexport.ops.sizes import padding_to_multiple
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class ShiftWindowMSA(Patch):
    """Keep the batch out of ``int()``: ``window_reverse`` fixes it at the traced one, and a batch of two comes out mixed.

    ``int(windows.shape[0] / (H * W / ws / ws))`` becomes a constant, and the reshape that follows accepts any other batch without a
    complaint. ``forward`` also crops its padding only if the traced size had some; here the padding and the crop are outside, where
    they always happen, and upstream meets whole windows.

    Sources: mmseg/models/backbones/swin.py and mmdet/models/backbones/swin.py, which hold the same class.
    """

    targets = tuple(f'{package}.models.backbones.swin.ShiftWindowMSA.{method}' for package in ('mmseg', 'mmdet')
                    for method in ('window_reverse', 'forward'))
    upstream = 'mmsegmentation 1.0.0 1.2.2, mmdet 3.0.0 3.3.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _window_reverse if target.endswith('window_reverse') else _padded(original)


def _window_reverse(module: Any, windows: Tensor, H: Any, W: Any) -> Tensor:  # noqa: N803, upstream passes them by name
    side = module.window_size
    channels = windows.shape[-1]
    grid = windows.view(-1, H // side, W // side, side, side, channels)
    return grid.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, H, W, channels)


def _padded(original: Callable[..., Any]) -> Callable[..., Any]:

    def forward(module: Any, query: Tensor, hw_shape: tuple[Any, Any]) -> Tensor:
        batch, length, channels = query.shape
        height, width = hw_shape
        side = module.window_size
        right, below = padding_to_multiple(width, side), padding_to_multiple(height, side)
        whole = F.pad(query.view(batch, height, width, channels), (0, 0, 0, right, 0, below))
        high, wide = whole.shape[1], whole.shape[2]
        x: Tensor = original(module, whole.view(batch, high * wide, channels), (high, wide))
        return x.view(batch, high, wide, channels)[:, :height, :width].reshape(batch, length, channels)

    return forward
