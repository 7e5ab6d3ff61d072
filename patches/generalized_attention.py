"""Replace how mmcv's GeneralizedAttention makes embeddings of positions."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class GeneralizedAttentionPositions(Patch):
    """Count positions by ``arange``.

    Upstream takes ``linspace`` from whole numbers: torch.export fixes its steps, and the exporter to ONNX makes integers of it, which it
    then multiplies with floats (torch 2.13.0).

    Paper: An Empirical Study of Spatial Attention Mechanisms, arXiv:1904.05873. Source: mmcv/cnn/bricks/generalized_attention.py.
    """

    targets = ('mmcv.cnn.bricks.generalized_attention.GeneralizedAttention.get_position_embedding',)
    upstream = 'mmcv 2.1.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return embeddings


def embeddings(module: Any, h: Any, w: Any, h_kv: Any, w_kv: Any, q_stride: int, kv_stride: int, device: torch.device,
               dtype: torch.dtype, feat_dim: int, wave_length: float = 1000) -> tuple[Tensor, Tensor]:
    """Return the embeddings of differences of columns (w, w_kv, D) and rows (h, h_kv, D)."""
    shares = torch.arange(0, feat_dim / 4, device=device, dtype=dtype) * (4.0 / feat_dim)
    waves = torch.full((1,), float(wave_length), device=device, dtype=dtype) ** shares

    def of(size: Any, others: Any) -> Tensor:
        places = torch.arange(size, device=device).to(dtype) * float(q_stride)
        other_places = torch.arange(others, device=device).to(dtype) * float(kv_stride)
        phases = ((places[:, None, None] - other_places[:, None]) * module.position_magnitude) / waves
        return torch.cat([phases.sin(), phases.cos()], dim=2)

    return of(w, w_kv), of(h, h_kv)
