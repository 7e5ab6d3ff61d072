"""Adaptive average pooling as two products with averaging matrices, for exporters.

Which cells an output averages depends on the size, and exporters write that out for the example's size, or as thousands of gathers; ONNX
has no such operator. A cell of the output is the mean over an interval of rows and one of columns, so it is ``A x B^T`` with matrices that
are made from the size, whatever it is.

Shapes: x (N, C, H, W) or (C, H, W); result (..., h, w).
Source: aten/src/ATen/native/AdaptivePooling.h, ``start_index`` and ``end_index``.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .lowerings import chosen


def adaptive_avg_pool2d(original: Callable[..., Tensor], x: Tensor, output_size: Any) -> Tensor:
    """In the form that the backend prefers: ``operator`` (the default, torch's own) or ``matrix``."""
    height, width = output_size if isinstance(output_size, Sequence) else (output_size, output_size)
    if chosen('adaptive_pooling', 'operator') == 'operator' or height is None or width is None:
        return original(x, output_size)
    if (height, width) == (1, 1):
        return x.mean(dim=(-2, -1), keepdim=True)
    down, across = averaging(x.shape[-2], height, x), averaging(x.shape[-1], width, x)
    return torch.matmul(torch.matmul(down, x), across.transpose(0, 1))


def averaging(size: Any, cells: int, like: Tensor) -> Tensor:
    """(cells, size): row i averages the interval that cell i covers."""
    cell = torch.arange(cells, device=like.device)[:, None]
    start, end = cell * size // cells, ((cell + 1) * size + cells - 1) // cells
    place = torch.arange(size, device=like.device)
    return ((place >= start) & (place < end)).to(like.dtype) / (end - start).to(like.dtype)
