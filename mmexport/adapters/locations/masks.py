"""Compute the mask of every location of a head of SOLO.

Source: mmdet/models/dense_heads/solo_head.py and solov2_head.py, which compute those of one picture after the other.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Groups = Sequence[Sequence[Tensor]]


def of_channels(head: Any, groups: Groups) -> Tensor:
    """Return the probabilities (N, L, h, w) where each location has a channel of its own (SOLO)."""
    size = groups[0][0].shape[2:]
    return torch.cat([F.interpolate(level.sigmoid(), size=size, mode='bilinear') for level in groups[0]], dim=1)


def of_rows_and_columns(head: Any, groups: Groups) -> Tensor:
    """Return the probabilities where each row and each column of locations has a channel (Decoupled SOLO)."""
    size = groups[0][0].shape[2:]
    columns, rows = ([F.interpolate(level.sigmoid(), size=size, mode='bilinear') for level in group] for group in groups[:2])
    return torch.cat([(of_rows[:, :, None] * of_columns[:, None]).flatten(1, 2) for of_columns, of_rows in zip(columns, rows, strict=True)],
                     dim=1)


def of_kernels(head: Any, groups: Groups) -> Tensor:
    """Return the probabilities where each location has the weights of a convolution (SOLOv2)."""
    return kernel_logits(groups).sigmoid()


def kernel_logits(groups: Groups) -> Tensor:
    kernels, _, (features,) = groups
    weights = torch.cat([level.flatten(2) for level in kernels], dim=2).transpose(1, 2)
    return (weights @ features.flatten(2)).unflatten(2, features.shape[2:])


def largest_logit(kind: str, groups: Groups) -> float:
    """Return the largest logit of a mask; `kind` is a key of `MASKS`."""
    logits = [kernel_logits(groups)] if kind == 'SOLOV2Head' else [level for group in groups[:-1] for level in group]
    return max(float(level.abs().max()) for level in logits)


# By the class that defines how the head decides: how its masks are computed, and by how much more than one probability they may be off.
MASKS: dict[str, tuple[Callable[[Any, Groups], Tensor], int]] = {
    'SOLOHead': (of_channels, 1), 'DecoupledSOLOHead': (of_rows_and_columns, 2), 'SOLOV2Head': (of_kernels, 1)}
NAMES = {'SOLOHead': ('masks', 'scores'), 'DecoupledSOLOHead': ('columns', 'rows', 'scores'),
         'SOLOV2Head': ('kernels', 'scores', 'features')}


def at(values: Tensor, places: Tensor) -> Tensor:
    """Return the entries `places` (N, K) of `values` (N, L, ...)."""
    first = torch.arange(values.shape[0], device=values.device)[:, None] * values.shape[1]
    return values.flatten(0, 1).index_select(0, (places + first).flatten()).unflatten(0, places.shape)
