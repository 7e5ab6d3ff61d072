"""Choose target labels on a scene, and measure a semantic model's distance to them.

Targets are blocks of a grid, each for a class that is to win there.
"""
from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..objectives import pairs

# The side of the grid of blocks.
GRID = 8


def labels_decided(labels: Tensor, classes: int) -> frozenset[int]:
    """Return the labels that win a share of the pixels: 2% of two classes, down to 0.1% of many."""
    least = min(max(0.1 / max(classes, 1), 0.001), 0.02) * labels.numel()
    values, counts = labels.unique(return_counts=True)
    return frozenset(int(value) for value in values[counts >= least])


def two_sided(logits: Tensor, edge: float) -> Tensor:
    """Return logits (N, 2, H, W) of both sides of the `edge`. The input is one channel."""
    return torch.cat([torch.zeros_like(logits), logits - edge], dim=1)


def block_target(logits: Tensor, target_classes: set[int], generator: torch.Generator) -> Tensor:
    """Give each wanted class blocks of a grid, where it is nearest to winning; elsewhere (N, H, W) the scene's own labels stay."""
    classes = torch.tensor(sorted(target_classes) * max(1, GRID * GRID // (4 * len(target_classes))))
    behind = F.adaptive_avg_pool2d(logits - logits.amax(dim=1, keepdim=True), GRID)[:, classes.to(logits.device)].flatten(2)
    grid = torch.full((len(logits), GRID * GRID), -1)
    for image, scores in enumerate(behind):
        # A little noise separates the equal rows of a class that has several blocks.
        for row, block in pairs(scores.cpu() + 1e-4 * torch.rand(scores.shape, generator=generator)):
            grid[image, block] = classes[row]
    cells = grid.view(-1, 1, GRID, GRID).float()
    target = F.interpolate(cells, size=logits.shape[2:], mode='nearest')[:, 0].long().to(logits.device)
    return torch.where(target < 0, logits.argmax(dim=1), target)


def semantic_objective(logits: Tensor, target: Tensor) -> Tensor:
    """Measure the cross-entropy of full-size logits (N, C, H, W) to target classes (N, H, W). Each class there has the same weight."""
    counts = target.flatten().bincount(minlength=logits.shape[1]).to(logits)
    return F.cross_entropy(logits, target, weight=1 / counts.clamp_min(1))
