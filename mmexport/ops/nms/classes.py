"""Keep boxes of different classes from suppressing each other."""
from __future__ import annotations

import torch
from torch import Tensor


def moved_apart(boxes: Tensor, labels: Tensor, valid: Tensor) -> Tensor:
    """Return boxes (N, M, 4), each moved by its class.

    Those of two classes do not overlap then. The arithmetic is that of mmcv's ``batched_nms``, because its rounding decides close calls.

    Args:
        labels: (N, M).
        valid: which boxes count (N, M); the largest coordinate of theirs decides how far the others move.
    """
    largest = torch.where(valid[..., None], boxes, torch.full_like(boxes, float('-inf'))).amax(dim=(1, 2))
    largest = torch.where(valid.any(dim=1), largest, torch.zeros_like(largest))
    return boxes + (labels.to(boxes) * (largest + 1)[:, None])[..., None]
