"""Compute greedy suppression of boxes as a fixed point, without a Python loop. Both forms compute the same.

Boxes are sorted, the best first. A box stays if no better box that stays overlaps it too much. Repeating this rule from "all stay" settles
one link of each chain of overlaps at a time, so that it ends after as many steps as the longest chain has links, with what greedy
suppression keeps. A step is a comparison over the matrix of overlaps.

``script`` is a loop of TorchScript, which a trace calls and keeps; ``while_loop`` is torch's operator of that name, which exported programs
hold, and of which ONNX makes its standard Loop.
"""
from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..op import form_of


def suppress(boxes: Tensor, candidates: Tensor, iou_threshold: float, offset: int = 0) -> Tensor:
    """Return which boxes stay (N, M).

    Args:
        boxes: (N, M, 4), x1 y1 x2 y2, in each picture by descending score. Upstream moves boxes of different classes apart before it
            calls its kernel; do the same, for it changes their rounding.
        candidates: (N, M), those that take part; the others neither stay nor suppress.
        iou_threshold: a box goes if its overlap with a better one is over this.
        offset: what is added to widths and heights.
    """
    suppresses = overlaps(boxes, offset) > iou_threshold
    place = torch.arange(boxes.shape[1], device=boxes.device)
    suppresses = suppresses & (place[:, None] < place)
    # A trace keeps the scripted loop only, whatever the format takes.
    if torch.jit.is_tracing() or form_of('nms') == 'script':
        return _scripted()(suppresses, candidates)  # type: ignore[no-any-return]
    return _looped(suppresses, candidates)


def overlaps(boxes: Tensor, offset: int) -> Tensor:
    """Return the intersection over union of each box with each other (N, M, M).

    Of two boxes without area it is zero, so that nothing is suppressed: mmcv divides zero by zero there, and a comparison with the NaN is
    false; in OpenVINO it is true.
    """
    x1, y1, x2, y2 = boxes.unbind(2)
    width = (torch.minimum(x2[:, :, None], x2[:, None]) - torch.maximum(x1[:, :, None], x1[:, None]) + offset).clamp(min=0)
    height = (torch.minimum(y2[:, :, None], y2[:, None]) - torch.maximum(y1[:, :, None], y1[:, None]) + offset).clamp(min=0)
    shared = width * height
    areas = (x2 - x1 + offset) * (y2 - y1 + offset)
    union = areas[:, :, None] + areas[:, None] - shared
    return shared / torch.where((union == 0) & (shared == 0), torch.ones_like(union), union)


def _fixed_point(suppresses: Tensor, candidates: Tensor) -> Tensor:
    stays = candidates
    before = torch.zeros_like(candidates)
    while bool((stays != before).any()):
        before = stays
        stays = candidates & ~(suppresses & before.unsqueeze(2)).any(dim=1)
    return stays


@cache
def _scripted() -> Any:
    return torch.jit.script(_fixed_point)


def _looped(suppresses: Tensor, candidates: Tensor) -> Tensor:
    # Its place in torch 2.8 to 2.14.
    from torch._higher_order_ops.while_loop import while_loop

    def goes_on(stays: Tensor, before: Tensor) -> Tensor:
        return (stays != before).any()

    def step(stays: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        # The operator does not take a tensor that is handed through.
        return candidates & ~(suppresses & stays.unsqueeze(2)).any(dim=1), stays.clone()

    stays, _ = while_loop(goes_on, step, (candidates.clone(), torch.zeros_like(candidates)))
    return stays  # type: ignore[no-any-return]
