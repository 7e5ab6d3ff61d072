"""Refuse, inside the graph, inputs that a file was not exported or not checked for."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from ..compat.exporting import is_exporting
from .specs import FOLLOWING, IMAGE, InputSpec


def _size_of(axis: str, name: str, size: int) -> str:
    return 'mmexport: axis ' + axis + ' of ' + name + ' has size ' + str(size)


@torch.jit.script_if_tracing
def _refuse_what_was_not_exported(tensor: Tensor, name: str, axes: list[str], dtype: str, low: list[int], high: list[int],
                                  multiples: list[int]) -> Tensor:
    if tensor.dim() != len(axes):
        raise ValueError('mmexport: ' + name + ' must have ' + str(len(axes)) + ' axes (' + ', '.join(axes) + '), and has ' +
                         str(tensor.dim()))
    if (dtype == 'float32' and tensor.dtype != torch.float32) or (dtype == 'int64' and tensor.dtype != torch.int64):
        raise ValueError('mmexport: ' + name + ' must be ' + dtype + ', as the manifest says')
    for axis in range(len(axes)):
        size = tensor.size(axis)
        if low[axis] >= 0 and low[axis] == high[axis] and size != low[axis]:
            raise ValueError(_size_of(axes[axis], name, size) + ', and this file takes ' + str(low[axis]) +
                             ' only; the manifest names the axes that are dynamic')
        if low[axis] >= 0 and (size < low[axis] or size > high[axis]):
            raise ValueError(_size_of(axes[axis], name, size) + ', and this file was checked from ' + str(low[axis]) + ' to ' +
                             str(high[axis]) + ' only; export with export.verify.' + ('batch' if axes[axis] == 'batch' else 'shapes') +
                             ' for more')
        if multiples[axis] > 1 and size % multiples[axis] != 0:
            raise ValueError(_size_of(axes[axis], name, size) + ', which must be a multiple of ' + str(multiples[axis]))
    return tensor


@torch.jit.script_if_tracing
def _refuse_another_batch(tensor: Tensor, first: Tensor, name: str, name_of_first: str) -> Tensor:
    # One row would be taken for all pictures.
    if tensor.size(0) != first.size(0):
        raise ValueError(_size_of('batch', name, tensor.size(0)) + ', and ' + name_of_first + ' has ' + str(first.size(0)))
    return tensor


class InputGuard(nn.Module):
    """Refuse an input that the file was not exported or checked for. The error names the reason.

    Args:
        shape: of the traced picture (N, C, H, W).
        dynamic: the open axes; the others take the traced size only.
        channels: of the picture, where there is no `shape`.
        ranges: by open axis, the smallest and the largest size that was checked; without one, those of the input's spec hold.
        multiple_of: what both sides must be multiples of.
        minimum: the smallest side that the model is known to take.
        inputs: what the file takes, with the traced shape of each; the picture where there are none.
    """

    def __init__(self, shape: Sequence[int] = (), dynamic: Sequence[str] = FOLLOWING, channels: int = 3,
                 ranges: Mapping[str, Sequence[int]] | None = None, multiple_of: int = 1, minimum: int = 1,
                 inputs: Sequence[tuple[InputSpec, Sequence[int]]] = ()) -> None:
        super().__init__()
        self.minimum = minimum
        self.channels = int(shape[1]) if shape else channels
        self.dynamic, self.ranges, self.multiple_of = tuple(dynamic), dict(ranges or {}), multiple_of
        self.inputs = [(spec, self._limits(spec, traced)) for spec, traced in inputs or [(IMAGE, shape or (-1, self.channels, -1, -1))]]

    def _limits(self, spec: InputSpec, traced: Sequence[int]) -> list[tuple[int, int]]:
        """Return by axis the smallest and the largest size that is taken; -1 where any is."""
        return [tuple(self.ranges.get(name, spec.ranges.get(name, (-1, -1)))) if name in spec.open_axes(self.dynamic)  # type: ignore[misc]
                else (int(size), int(size)) for name, size in zip(spec.axes, traced, strict=True)]

    def without_ranges(self) -> InputGuard:
        """Return a guard that takes any size along the axes that follow the picture."""
        inputs = [(spec, [high for _, high in limits]) for spec, limits in self.inputs]
        return InputGuard(channels=self.channels, multiple_of=self.multiple_of, inputs=inputs)

    @property
    def _sides(self) -> dict[str, tuple[int, int]]:
        return {name: limits for spec, sizes in reversed(self.inputs) for name, limits in zip(spec.axes, sizes, strict=True)
                if name in FOLLOWING}

    @property
    def fixed(self) -> bool:
        """Return whether batch, height or width takes one size only."""
        return any(low == high and low >= 0 for low, high in self._sides.values())

    @property
    def fixed_batch(self) -> bool:
        """Return whether the batch takes one size only."""
        low, high = self._sides.get('batch', (-1, -1))
        return low == high and low >= 0

    @property
    def fixed_sides(self) -> bool:
        """Return whether height or width takes one size only."""
        return any(low == high and low >= 0 for name, (low, high) in self._sides.items() if name != 'batch')

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(self._of_the_batch(self._checked(tensor, spec, limits), spec, tensors[0])
                     for tensor, (spec, limits) in zip(tensors, self.inputs, strict=True))

    def _of_the_batch(self, tensor: Tensor, spec: InputSpec, first: Tensor) -> Tensor:
        # An exported program knows that both axes are one.
        if spec is self.inputs[0][0] or spec.axes[0] != 'batch' or is_exporting(tensor):
            return tensor
        return _refuse_another_batch(tensor, first, spec.name, self.inputs[0][0].name)

    def _checked(self, tensor: Tensor, spec: InputSpec, limits: Sequence[tuple[int, int]]) -> Tensor:
        exporting = is_exporting(tensor)
        if exporting:
            # Open axes have the ranges of their Dims; a question about a symbolic size would be one more check.
            limits = [side if side[0] == side[1] else (-1, -1) for side in limits]
        multiples = [1 if exporting or name not in ('height', 'width') else self.multiple_of for name in spec.axes]
        return _refuse_what_was_not_exported(tensor, spec.name, list(spec.axes), spec.dtype, [low for low, _ in limits],
                                             [high for _, high in limits], multiples)
