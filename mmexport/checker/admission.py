"""Refuse an input that a file was not exported or checked for. The error gives the reason."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from .conditions import refused

# Axes whose size must agree between all inputs of one call.
FOLLOWING = ('batch', 'height', 'width')


class Refusal(ValueError):
    """Report that an input lies outside what the manifest of a file declares."""


def why_refused(specs: Sequence[Mapping[str, Any]], inputs: Sequence[Tensor]) -> str | None:
    """Return the reason to refuse `inputs`, or None.

    Args:
        specs: the inputs of the manifest: axes, ranges, multiple_of, minimum, conditions.
    """
    if specs and len(inputs) != len(specs):
        return f"{len(inputs)} inputs, and {len(specs)} were expected ({', '.join(str(spec.get('name')) for spec in specs)})"
    sizes: dict[str, tuple[int, str]] = {}
    for spec, tensor in zip(specs, inputs, strict=False):
        reason = _why_refused(spec, tensor)
        if reason:
            return reason if len(specs) == 1 else f"{spec.get('name')}: {reason}"
        for axis, size in zip(spec.get('axes', ()), tensor.shape, strict=False):
            known, other = sizes.setdefault(str(axis), (int(size), str(spec.get('name'))))
            if known != size and axis in FOLLOWING:
                return f"{axis} is {known} in {other} and {size} in {spec.get('name')}"
    conditions = [text for spec in specs for text in spec.get('conditions', ())]
    condition = refused(conditions, {axis: size for axis, (size, _) in sizes.items()})
    return f'the file was lowered for other sizes: {condition} does not hold' if condition else None


def _why_refused(spec: Mapping[str, Any], image: Tensor) -> str | None:
    axes = [str(axis) for axis in spec.get('axes', ())]
    if not axes:
        return None
    if image.dim() != len(axes):
        return f'{image.dim()} axes, and {len(axes)} were expected ({", ".join(axes)})'
    sizes = dict(zip(axes, map(int, image.shape), strict=True))
    minimum = int(spec.get('minimum', 1))
    if any(sizes[axis] < minimum for axis in ('height', 'width') if axis in sizes):
        return f'height and width must be at least {minimum}, which is what the model takes'
    traced = dict(zip(axes, spec.get('traced', ()), strict=False))
    for axis in axes:
        if axis in traced and axis not in spec.get('dynamic', ()) and sizes[axis] != traced[axis]:
            return f'{axis} is {sizes[axis]}, and this file takes {traced[axis]} only'
        low, high = spec.get('ranges', {}).get(axis, (sizes[axis], sizes[axis]))
        if not low <= sizes[axis] <= high:
            return f'{axis} is {sizes[axis]}, and this file was checked from {low} to {high} only'
    multiple = int(spec.get('multiple_of', 1))
    if any(sizes[axis] % multiple for axis in ('height', 'width') if axis in sizes):
        return f'height and width must be multiples of {multiple}'
    return None
