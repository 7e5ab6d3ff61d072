"""Decide which queries become segments and instances, as mmdet's MaskFormerFusionHead does, from tensor operations only.

`fusion` is the model's MaskFormerFusionHead. Source: mmdet/models/seg_heads/panoptic_fusion_heads/maskformer_fusion_head.py.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def candidates_of(fusion: Any, cls_logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return score, class and candidacy for a segment of each query (N, Q)."""
    scores, classes = cls_logits.softmax(dim=-1).max(dim=-1)
    return scores, classes, classes.ne(fusion.num_classes) & (scores > fusion.test_cfg.get('object_mask_thr', 0.8))


def segment_map(fusion: Any, scores: Tensor, classes: Tensor, candidates: Tensor, winner: Tensor, area: Tensor,
                sure: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the segment map (N, H, W), and its intermediate decisions.

    Args:
        scores, classes, candidates: of each query (N, Q), see `candidates_of`.
        winner: the query that wins each pixel (N, H, W).
        area: the number of pixels where the mask of each query is at least 0.5 (N, Q).
        sure: where the mask of the winner is at least 0.5 (N, H, W).
    """
    cfg = fusion.test_cfg
    won = torch.zeros_like(scores).scatter_add_(1, winner.flatten(1), torch.ones_like(winner.flatten(1), dtype=scores.dtype))
    # In double, as mmdet divides Python numbers: a ratio must fall on the same side of the threshold.
    ratio = won.double() / area.double().clamp_min(1.0)
    accepted = candidates & (won > 0) & (area > 0) & (ratio >= cfg.get('iou_thr', 0.8))
    thing = accepted & (classes < fusion.num_things_classes)
    segment = torch.where(thing, classes + thing.long().cumsum(dim=1) * 1000, classes)
    segment = torch.where(accepted, segment, torch.full_like(segment, fusion.num_classes))
    result = segment.gather(1, winner.flatten(1)).view_as(winner)
    if cfg.get('filter_low_score', False):
        result = torch.where(sure, result, torch.full_like(result, fusion.num_classes))
    return result.to(torch.int32), dict(scores=scores, classes=classes, kept=candidates, ratio=ratio, won=won, winner=winner)


def top_queries(fusion: Any, cls_logits: Tensor) -> dict[str, Tensor]:
    """Choose the K best pairs of query and class as instances (N, K). Things come first; each group is in descending order of score."""
    limit = int(fusion.test_cfg.get('max_per_image', 100))
    scores, index = cls_logits.softmax(dim=-1)[..., :-1].flatten(1).topk(limit, dim=1)
    labels = index % fusion.num_classes
    thing = labels < fusion.num_things_classes
    # A stable sort by `thing`, written as keys that no two rows share: exporters have no stable sort.
    position = torch.arange(limit, device=index.device)
    order = (position + limit * (~thing)).topk(limit, dim=1, largest=False).indices
    return dict(scores=scores.gather(1, order), labels=labels.gather(1, order), thing=thing.gather(1, order),
                query=(index // fusion.num_classes).gather(1, order), count=thing.sum(dim=1), edge=scores[:, -1])


def winning_weights(scores: Tensor, candidates: Tensor) -> Tensor:
    """Give queries that are not kept a factor of -1. Their products are then below those of kept ones."""
    return torch.where(candidates, scores, -torch.ones_like(scores))
