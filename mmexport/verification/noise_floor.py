"""Count comparisons inside a model that rounding may decide the other way. Inputs are moved off them.

Masked attention asks ``sigmoid < 0.5`` of every cell of every layer. Of a small picture's 1e5 cells one may lie within rounding of the
threshold; whether it flips depends on the processor, and then outputs of many queries move, in a patched model or a file that
is right. A noise of 1e-6 finds such a cell by luck only. Here eager itself is asked how many it has.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# Some times what rounding moves: float32 logits of a deep model are off by about 1e-6 of their scale.
WIDTH = 2e-5
# Where an input has more such comparisons, hardly any other input of its size has none.
FEW, TRIES = 3, 8
NUDGE = 1e-2
_ASKS = {overload for packet in (torch.ops.aten.lt, torch.ops.aten.le, torch.ops.aten.gt, torch.ops.aten.ge)
         for overload in (packet.Scalar, packet.Tensor)}


class NearThresholdCounter(TorchDispatchMode):
    """Count in `count` the comparisons of floats that are nearly equal. They lie within `WIDTH` of the larger side's scale."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func in _ASKS and isinstance(args[0], Tensor) and args[0].is_floating_point() and args[0].numel():
            one, other = args[0], args[1]
            scale = max(float(one.abs().max()), float(other.abs().max() if isinstance(other, Tensor) else abs(other)))
            self.count += int(((one - other).abs() < WIDTH * scale).sum())
        return func(*args, **(kwargs or {}))


def move_off_thresholds(image: Tensor, count_near: Callable[[Tensor], int]) -> Tensor:
    """Return `image`, or a slightly noisy one with fewer comparisons near a threshold. With many nothing is tried.

    Args:
        count_near: counts them.
    """
    best, fewest = image, count_near(image)
    if fewest > FEW:
        return image
    for trial in range(TRIES):
        if not fewest:
            break
        nudged = image + noise(image, 2000 + trial, NUDGE)
        near = count_near(nudged)
        if near < fewest:
            best, fewest = nudged, near
    return best


def noise(image: Tensor, seed: int, share: float) -> Tensor:
    """Return normal noise of `share` of the image's scale, the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(image.shape, generator=generator).to(image.device) * share * image.abs().max()
