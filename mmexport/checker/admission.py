"""Refuse an input that a file was not exported or not checked for, and give the reason."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from .conditions import refused


class Refusal(ValueError):
    """Report that an input lies outside what the manifest of a file declares."""


def why_refused(spec: Mapping[str, Any], image: Tensor) -> str | None:
    """Return the reason to refuse `image`, or None.

    Args:
        spec: an input of the manifest: axes, ranges, multiple_of, minimum, conditions.
    """
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
    condition = refused(spec.get('conditions', ()), sizes)
    return f'the file was lowered for other sizes: {condition} does not hold' if condition else None
