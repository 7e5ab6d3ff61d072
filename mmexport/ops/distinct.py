"""Choose boxes that resemble no better one, in all pictures of a batch at once."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import UnsupportedModelError
from .nms import first_kept, moved_apart
from .ranking import ranked, rows_at


def distinct(boxes: Tensor, scores: Tensor, candidates: Tensor, cfg: Any, limit: int) -> tuple[Tensor, Tensor]:
    """Return which of `candidates` (N, Q) stay (N, limit), the best first, and how many they are (N,).

    Args:
        boxes: (N, Q, 4), centre and size as shares of the picture.

    Raises:
        UnsupportedModelError: `cfg` asks for another suppression than greedy one.
    """
    corners = corners_of(boxes)
    # Places in padding are all alike: which of them comes first decides.
    order = ranked(torch.where(candidates, scores, torch.full_like(scores, -1.0)))
    # Upstream gives all of them the class 1: only the rounding changes.
    moved = moved_apart(corners, torch.ones_like(order), candidates)
    index, count = first_kept(rows_at(moved, order), candidates.gather(1, order), threshold_of(cfg), limit)
    return order.gather(1, index), count


def threshold_of(cfg: Any) -> float:
    """Return the overlap above which a box goes. An UnsupportedModelError says that `cfg` asks for another suppression."""
    if cfg.get('type', 'nms') != 'nms':
        raise UnsupportedModelError(f"dqs_cfg has the type {cfg['type']!r}: only nms is known")
    return float(cfg.get('iou_threshold', cfg.get('iou_thr')))


def corners_of(boxes: Tensor) -> Tensor:
    """Return x1 y1 x2 y2 of `boxes` (N, Q, 4), centre and size."""
    centre, size = boxes.split(2, dim=2)
    return torch.cat([centre - 0.5 * size, centre + 0.5 * size], dim=2)


def marked(index: Tensor, count: Tensor, size: int) -> Tensor:
    """Return whether each of `size` boxes is among the first `count` (N,) of `index` (N, limit)."""
    target = torch.where(torch.arange(index.shape[1], device=index.device) < count[:, None], index, torch.full_like(index, size))
    return torch.zeros_like(target[:, :1]).expand(-1, size + 1).scatter(1, target, 1)[:, :size] > 0
