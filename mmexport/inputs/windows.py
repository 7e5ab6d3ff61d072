"""Cut a picture into the windows of a sliding model, and join their logits."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def window_places(size: Sequence[int], sliding: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return top and left of each window over a picture of `size` (H, W); the last ones end with the picture.

    Source: mmseg/models/segmentors/encoder_decoder.py, slide_inference.
    """
    along = []
    for side, window, stride in zip(size, sliding['window'], sliding['stride'], strict=True):
        count = max(int(side) - window + stride - 1, 0) // stride + 1
        along.append([max(min(number * stride + window, int(side)) - window, 0) for number in range(count)])
    return [(top, left) for top in along[0] for left in along[1]]


def windows_of(image: Tensor, sliding: Mapping[str, Any]) -> Tensor:
    """Return the windows of one picture (1, C, H, W), as a batch."""
    height, width = sliding['window']
    return torch.cat([image[:, :, top:top + height, left:left + width] for top, left in window_places(image.shape[2:], sliding)])


def joined(logits: Tensor, size: Sequence[int], sliding: Mapping[str, Any]) -> Tensor:
    """Return the logits (1, C, H, W) of a whole picture from those of its windows. The manifest's ``sliding`` has the rule."""
    height, width = sliding['window']
    total, count = logits.new_zeros((1, logits.shape[1], *size)), logits.new_zeros((1, 1, *size))
    for window, (top, left) in zip(logits, window_places(size, sliding), strict=True):
        total[0, :, top:top + height, left:left + width] += window
        count[0, :, top:top + height, left:left + width] += 1
    return total / count
