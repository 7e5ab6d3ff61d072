"""Refuse, inside the graph, inputs that a file was not exported or not checked for."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

AXES = ('batch', 'channel', 'height', 'width')


@torch.jit.script_if_tracing
def _refuse_what_was_not_exported(image: Tensor, low: list[int], high: list[int], multiple: int, channels: int) -> Tensor:
    if image.dim() != 4:
        raise ValueError('mmexport: expected an image tensor (N, C, H, W), got another number of axes')
    if image.size(1) != channels:
        raise ValueError('mmexport: expected an image tensor with ' + str(channels) + ' channels')
    if image.dtype != torch.float32:
        raise ValueError('mmexport: expected a floating point image (float32), normalised as the manifest says')
    for axis in range(4):
        if low[axis] >= 0 and (image.size(axis) < low[axis] or image.size(axis) > high[axis]):
            if low[axis] == high[axis]:
                raise ValueError('mmexport: an axis has another size than the one it was exported with, and was not declared dynamic')
            raise ValueError('mmexport: axis ' + str(axis) + ' has size ' + str(image.size(axis)) + ', and this file was checked from ' +
                             str(low[axis]) + ' to ' + str(high[axis]) + ' only; export with export.verify.shapes for more')
    if multiple > 1 and (image.size(2) % multiple != 0 or image.size(3) % multiple != 0):
        raise ValueError('mmexport: height and width must be multiples of ' + str(multiple))
    return image


class InputGuard(nn.Module):
    """Refuse an input that the file was not exported or not checked for, and name the reason.

    Args:
        shape: the traced one.
        dynamic: the open axes; the others take the traced size only.
        channels: of the input, where there is no `shape`.
        ranges: by open axis, the smallest and the largest size that was checked.
        multiple_of: what both sides must be multiples of.
        minimum: the smallest side that the model is known to take.
    """

    def __init__(self, shape: Sequence[int] = (), dynamic: Sequence[str] = AXES, channels: int = 3,
                 ranges: Mapping[str, Sequence[int]] | None = None, multiple_of: int = 1, minimum: int = 1) -> None:
        super().__init__()
        self.minimum = minimum
        self.channels = int(shape[1]) if shape else channels
        self.dynamic, self.ranges, self.multiple_of = tuple(dynamic), dict(ranges or {}), multiple_of
        limits = [(-1, -1) if axis == 'channel' or not shape else (int(side), int(side)) if axis not in dynamic
                  else tuple(self.ranges.get(axis, (-1, -1))) for axis, side in zip(AXES, shape or (0, 0, 0, 0), strict=True)]
        self.low, self.high = [int(low) for low, _ in limits], [int(high) for _, high in limits]

    @property
    def fixed(self) -> bool:
        """Return whether batch, height or width takes one size only."""
        return any(low == high and low >= 0 for axis, (low, high) in enumerate(zip(self.low, self.high, strict=True)) if axis != 1)

    @property
    def fixed_sides(self) -> bool:
        """Return whether height or width takes one size only."""
        return any(self.low[axis] == self.high[axis] and self.low[axis] >= 0 for axis in (2, 3))

    def forward(self, image: Tensor) -> Tensor:
        if torch.compiler.is_exporting():
            # Open axes have the ranges of their Dims; a question about a symbolic size would be one more check.
            open_axes = [low != high for low, high in zip(self.low, self.high, strict=True)]
            low, high = ([-1 if is_open else side for side, is_open in zip(sides, open_axes, strict=True)]
                         for sides in (self.low, self.high))
            return _refuse_what_was_not_exported(image, low, high, 1, self.channels)
        return _refuse_what_was_not_exported(image, self.low, self.high, self.multiple_of, self.channels)
