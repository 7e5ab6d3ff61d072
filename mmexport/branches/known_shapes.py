"""Give the shapes of results that torch takes milliseconds for, in Python.

A model is run without values at dozens of sizes. With a ResNet, resizing and batch normalisation took nine tenths of that time. What an
operator refuses, and what is not laid out in order, is left to torch.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
# Takes the operator's arguments; returns None where torch has to be asked.
Rule = Callable[..., Any]


def _resized(x: Tensor, size: Any, *_: Any) -> Tensor | None:
    # Of channels that are neighbours in memory, so are those of the result.
    if x.dim() != 4 or x.stride(1) <= x.stride(3) or not _has_elements(x.shape) or not size or not _has_elements(size):
        return None
    return x.new_empty((*x.shape[:2], *size))


def _sampled(x: Tensor, grid: Tensor, *_: Any) -> Tensor | None:
    if x.dim() != 4 or grid.dim() != 4 or x.shape[0] != grid.shape[0] or grid.shape[3] != 2 or x.dtype != grid.dtype:
        return None
    return x.new_empty((*x.shape[:2], *grid.shape[1:3])) if _has_elements((*x.shape, *grid.shape)) else None


def _batch_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, var: Tensor | None, training: bool,
                *_: Any) -> tuple[Tensor, ...] | None:
    if training or mean is None or var is None or x.dim() < 2 or not x.is_contiguous():
        return None
    if not _fit(x, x.shape[1:2], weight, bias, mean, var):
        return None
    return torch.empty_like(x), x.new_empty(0), x.new_empty(0)


def _layer_norm(x: Tensor, shape: Any, weight: Tensor | None, bias: Tensor | None, *_: Any) -> tuple[Tensor, ...] | None:
    axes = len(shape)
    if not axes or list(x.shape[-axes:]) != list(shape) or not x.is_contiguous() or not x.numel() or not _fit(x, shape, weight, bias):
        return None
    return (torch.empty_like(x), *(x.new_empty((*x.shape[:-axes], *[1] * axes)) for _ in range(2)))


def _group_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, hxw: int, groups: int,
                *_: Any) -> tuple[Tensor, ...] | None:
    if list(x.shape[:2]) != [n, c] or c % groups or not x.is_contiguous() or x.numel() != n * c * hxw or not x.numel():
        return None
    return (torch.empty_like(x), *(x.new_empty((n, groups)) for _ in range(2))) if _fit(x, [c], weight, bias) else None


def _fit(x: Tensor, shape: Any, *parts: Tensor | None) -> bool:
    """Return whether the weights of a normalisation have `shape` and the dtype of `x`."""
    return all(part is None or (list(part.shape) == list(shape) and part.dtype == x.dtype) for part in parts)


def _added_product(bias: Tensor, one: Tensor, other: Tensor) -> Tensor | None:
    if one.dim() != 2 or other.dim() != 2 or one.shape[1] != other.shape[0] or bias.shape != other.shape[1:]:
        return None
    return one.new_empty((one.shape[0], other.shape[1])) if bias.dtype == one.dtype == other.dtype else None


def _has_elements(shape: Any) -> bool:
    return all(side > 0 for side in shape)


RULES: dict[Any, Rule] = {
    aten.upsample_bilinear2d.default: _resized, aten.upsample_bicubic2d.default: _resized, aten.grid_sampler_2d.default: _sampled,
    aten.native_batch_norm.default: _batch_norm, aten.native_layer_norm.default: _layer_norm, aten.native_group_norm.default: _group_norm,
    aten.addmm.default: _added_product}
