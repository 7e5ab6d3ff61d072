"""Find half spaces of a mask feature that hardly overlap, by clustering: each becomes the mask of one query."""
from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from .calibrate import EIGENVALUE_FLOOR, eigen

MASK_STD = 4.0
# Queries without a region hold up to half of the image: a mask of a few cells would turn one flipped cell into a jump.
IDLE = 0.5
# Share of a mask that no other mask claims; the iou_thr of 0.8 has to be exceeded clearly.
EXCLUSIVE = 0.93


def choose_regions(feature: Tensor, order: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return mask embeddings (Q, c), a bias (c) for the feature, and active ids. They are chosen from a feature (N, c, h, w) and ordered
    query ids."""
    rows = feature.permute(0, 2, 3, 1).flatten(0, 2)
    rows = rows[torch.randperm(len(rows), generator=generator)[:16000]]
    mean, values, vectors = eigen(rows)
    depth = max(4, int((values > EIGENVALUE_FLOOR * values[0]).sum()))
    white = vectors[:, :depth] / values[:depth].sqrt()
    queries = len(order)
    count = max(1, min(count, queries // 3))
    points = (rows - mean) @ white
    directions = F.normalize(_clusters(points, count, generator), dim=1)
    thresholds = _nearly_exclusive(points @ directions.T)
    embedding = 0.8 * torch.randn(queries, depth, generator=generator) / math.sqrt(depth)
    offset = IDLE * torch.rand(queries, generator=generator)
    active = order[:count]
    embedding[active], offset[active] = directions, thresholds
    # A constant has to come from the feature itself: a bias along its flattest axis.
    level, flat = math.sqrt(float(values[0])), vectors[:, -1]
    return MASK_STD * (embedding @ white.T - offset[:, None] * flat / level), level * flat - mean, active


def _nearly_exclusive(scores: Tensor) -> Tensor:
    """Return thresholds (K) above which each column of `scores` is its row's own. This holds for `EXCLUSIVE` of the rows above it."""
    count = scores.shape[1]
    thresholds = torch.quantile(scores, 1 - 1 / max(count, 2), dim=0)
    for _ in range(60):
        margin = scores - thresholds
        above = margin > 0
        assigned = F.one_hot(margin.argmax(1), count).bool() & above
        share = assigned.sum(0) / above.sum(0).clamp_min(1)
        thresholds = thresholds + torch.where(share < EXCLUSIVE, 0.06, -0.03)
    return thresholds


def _clusters(points: Tensor, count: int, generator: torch.Generator, steps: int = 12) -> Tensor:
    """Run k-means with k-means++ seeding and return centres (count, d)."""
    centres = points[torch.randperm(len(points), generator=generator)[:1]]
    for _ in range(count - 1):
        distance = torch.cdist(points, centres).min(1).values.square()
        centres = torch.cat([centres, points[torch.multinomial(distance, 1, generator=generator)]])
    for _ in range(steps):
        members = F.one_hot(torch.cdist(points, centres).argmin(1), count).to(points.dtype)
        centres = (members.T @ points) / members.sum(0).clamp_min(1)[:, None]
    return centres
