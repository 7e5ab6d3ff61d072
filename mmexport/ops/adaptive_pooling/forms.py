"""Compute adaptive pooling for exporters: the average by two averaging matrices, the maximum by index.

Which cells an output averages depends on the size, and exporters write that out for the example's size, or as thousands of gathers; ONNX
has no such operator. A cell of the output is the mean over an interval of rows and one of columns, so it is ``A x B^T`` with matrices that
are made from the size, whatever it is. The maximum is taken of the same intervals, each written out to the widest by its last row.

Shapes: x (N, C, H, W) or (C, H, W); result (..., h, w).
Source: aten/src/ATen/native/AdaptivePooling.h, ``start_index`` and ``end_index``.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..op import form_of


def adaptive_avg_pool2d(original: Callable[..., Tensor], x: Tensor, output_size: Any) -> Tensor:
    """Pool by averages in the form that the backend prefers: ``operator`` (torch's own, the default) or ``matrix``."""
    height, width = output_size if isinstance(output_size, Sequence) else (output_size, output_size)
    if form_of('adaptive_pooling') == 'operator' or height is None or width is None:
        return original(x, output_size)
    if (height, width) == (1, 1):
        return x.mean(dim=(-2, -1), keepdim=True)
    down, across = averaging(x.shape[-2], height, x), averaging(x.shape[-1], width, x)
    return torch.matmul(torch.matmul(down, x), across.transpose(0, 1))


def averaging(size: Any, cells: int, like: Tensor) -> Tensor:
    """Return the averaging matrix (cells, size): row i averages the interval of cell i."""
    cell = torch.arange(cells, device=like.device)[:, None]
    start, end = _intervals(cell, size, cells)
    cell = torch.arange(size, device=like.device)
    return ((cell >= start) & (cell < end)).to(like.dtype) / (end - start).to(like.dtype)


def adaptive_max_pool2d(original: Callable[..., Any], x: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Pool by maxima in the forms of `adaptive_avg_pool2d`; with indices always torch's own."""
    height, width = output_size if isinstance(output_size, Sequence) else (output_size, output_size)
    if return_indices or form_of('adaptive_pooling') == 'operator' or height is None or width is None:
        return original(x, output_size, return_indices)
    return _largest(_largest(x, width).transpose(-2, -1), height).transpose(-2, -1)


def _largest(x: Tensor, cells: Any) -> Tensor:
    """Return the maximum of each cell's interval: (..., size) -> (..., cells)."""
    size = x.shape[-1]
    cell = torch.arange(cells, device=x.device)[:, None]
    start, end = _intervals(cell, size, cells)
    widest = (size + cells - 1) // cells + 1
    index = torch.minimum(start + torch.arange(widest, device=x.device), end - 1)
    return x.index_select(-1, index.flatten()).unflatten(-1, (cells, widest)).amax(-1)


def _intervals(cell: Tensor, size: Any, cells: Any) -> tuple[Tensor, Tensor]:
    return cell * size // cells, ((cell + 1) * size + cells - 1) // cells
