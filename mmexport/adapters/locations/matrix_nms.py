"""Lower the scores of masks that overlap better ones of their class: matrix NMS, for a whole batch.

Paper: SOLOv2, NeurIPS 2020. Source: mmdet/models/layers/matrix_nms.py, for one picture.
"""
from __future__ import annotations

import torch
from torch import Tensor


def decayed(scores: Tensor, labels: Tensor, masks: Tensor, valid: Tensor, sigma: float) -> Tensor:
    """Return the scores (N, M), lowered by the gaussian of overlaps.

    Args:
        scores: (N, M), in descending order.
        masks: (N, M, P), 0 or 1, as floating point.
        valid: (N, M), which of them there are.
    """
    areas, shared = masks.sum(dim=2), masks @ masks.transpose(1, 2)
    rank = torch.arange(scores.shape[1], device=scores.device)
    compared = (rank[:, None] < rank) & (labels[:, :, None] == labels[:, None]) & valid[:, :, None] & valid[:, None]
    overlap = shared / (areas[:, :, None] + areas[:, None] - shared).clamp(min=1) * compared
    # What a mask itself lost to better ones weakens its effect on the others.
    own = overlap.amax(dim=1)[..., None]
    return scores * (sigma * (own * own - overlap * overlap)).exp().amin(dim=1)
