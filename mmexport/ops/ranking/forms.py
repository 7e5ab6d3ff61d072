"""Compute the order of scores. Of equal ones the first comes first, but in OpenVINO.

Exporters to ONNX have no stable sort; their sort is ONNX's TopK, which breaks ties by the lower index. OpenVINO's stable TopK takes time
that grows with the square of the number of scores (seen in 2026.4); its plain one leaves ties open.
"""
from __future__ import annotations

from torch import Tensor

from ..op import form_of


def ranked(scores: Tensor) -> Tensor:
    """Return the indices (N, M) of scores (N, M), the best first."""
    if form_of('ranking') == 'plain':
        return scores.sort(dim=1, descending=True).indices
    return scores.sort(dim=1, descending=True, stable=True).indices


def rows_at(values: Tensor, index: Tensor) -> Tensor:
    """Return the rows `index` (N, K) of `values` (N, P, D) -> (N, K, D)."""
    return values.gather(1, index.unsqueeze(2).expand(-1, -1, values.shape[2]))
