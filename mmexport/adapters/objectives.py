"""Choose target decisions from a model's outputs on a scene, and measure the distance to them.

Semantic: blocks of a grid, each for a class that is to win there. Panoptic: queries, each with a class and a region of its own. A semantic
objective leaves a panoptic head with fewer kept segments than it had, because a segment is kept by thresholds of its own.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

Raw = tuple[Tensor, ...]
# Raw outputs and the normalised image -> how far the decisions are from the targets.
Objective = Callable[[Raw, Tensor], Tensor]
# Queries (K) of one image, the class that each shall have (K), and the region that shall be its own (K, H, W).
SegmentTargets = tuple[Tensor, Tensor, Tensor]

# The side of the grid of blocks, and how many queries a panoptic objective cares for.
GRID, QUERIES = 8, 25
# In log odds: by how much a class shall pass the threshold, and how much nearer a seen class must be to be preferred to a wanted one.
CLASS_MARGIN, SEEN = 0.5, 3.0
# Claims outside a query's region weigh this much more than gaps inside.
OUTSIDE = 4.0


def labels_decided(labels: Tensor, classes: int) -> frozenset[int]:
    """Return the labels that win a share of the pixels: 2% of two classes, down to 0.1% of many."""
    least = min(max(0.1 / max(classes, 1), 0.001), 0.02) * labels.numel()
    values, counts = labels.unique(return_counts=True)
    return frozenset(int(value) for value in values[counts >= least])


def two_sided(logits: Tensor, threshold: float) -> Tensor:
    """Return logits (N, 2, H, W) of both sides of a sigmoid's threshold, from its one channel."""
    return torch.cat([torch.zeros_like(logits), logits - math.log(threshold / (1 - threshold))], dim=1)


def block_target(logits: Tensor, target_classes: set[int], generator: torch.Generator) -> Tensor:
    """Give each wanted class blocks of a grid, where it is nearest to winning; elsewhere (N, H, W) the scene's own labels stay."""
    classes = torch.tensor(sorted(target_classes) * max(1, GRID * GRID // (4 * len(target_classes))))
    behind = F.adaptive_avg_pool2d(logits - logits.amax(dim=1, keepdim=True), GRID)[:, classes.to(logits.device)].flatten(2)
    grid = torch.full((len(logits), GRID * GRID), -1)
    for image, scores in enumerate(behind):
        # A little noise separates the equal rows of a class that has several blocks.
        for row, block in _pairs(scores.cpu() + 1e-4 * torch.rand(scores.shape, generator=generator)):
            grid[image, block] = classes[row]
    cells = grid.view(-1, 1, GRID, GRID).float()
    target = F.interpolate(cells, size=logits.shape[2:], mode='nearest')[:, 0].long().to(logits.device)
    return torch.where(target < 0, logits.argmax(dim=1), target)


def semantic_objective(logits: Tensor, target: Tensor) -> Tensor:
    """Measure the cross-entropy of full-size logits (N, C, H, W) to target classes (N, H, W); each class there counts alike."""
    counts = target.flatten().bincount(minlength=logits.shape[1]).to(logits)
    return F.cross_entropy(logits, target, weight=1 / counts.clamp_min(1))


def segment_targets(cls_logits: Tensor, masks: Tensor, target_classes: set[int], threshold: float) -> SegmentTargets:
    """Let confident queries (Q, C + 1) keep their class, and give each wanted class the free query that is nearest to it.

    A pixel belongs to the chosen query whose mask (Q, H, W) is highest there, each measured from a level of its own above which lies
    about one share of the image: so every one of them gets a region, and mostly where it looks already.
    """
    scores, labels = cls_logits.softmax(dim=-1).max(dim=-1)
    confident = (labels < cls_logits.shape[-1] - 1) & (scores > threshold)
    chosen = {int(query): int(labels[query]) for query in confident.nonzero()[:, 0]}
    missing = torch.tensor(sorted(set(range(cls_logits.shape[-1] - 1)) - set(chosen.values())), dtype=torch.long)
    free = (~confident).nonzero()[:, 0].cpu()
    nearest = cls_logits.log_softmax(dim=-1).cpu()[free][:, missing]
    nearest -= SEEN * torch.tensor([name not in target_classes for name in missing.tolist()])
    for row, column in _pairs(nearest)[:max(QUERIES - len(chosen), 4)]:
        chosen[int(free[row])] = int(missing[column])
    queries, classes = (torch.tensor(list(part), device=masks.device) for part in (chosen, chosen.values()))
    chosen_masks = masks[queries]
    level = chosen_masks.flatten(1).sort(dim=1).values[:, int(chosen_masks[0].numel() * max(0.0, 1 - 1.2 / len(chosen_masks)))]
    winner = (chosen_masks - level[:, None, None]).argmax(dim=0)
    return queries, classes, F.one_hot(winner, len(chosen_masks)).permute(2, 0, 1).to(masks)


def panoptic_objective(cls_logits: Tensor, masks: Tensor, targets: Sequence[SegmentTargets], threshold: float) -> Tensor:
    """Measure how far chosen queries are from passing the class threshold, and their masks from their regions."""
    total = masks.new_zeros(())
    required_odds = math.log(threshold / (1 - threshold)) + CLASS_MARGIN
    for logits, mask, (queries, classes, regions) in zip(cls_logits, masks, targets, strict=True):
        rows = logits[queries]
        target_logits = rows.gather(1, classes[:, None])[:, 0]
        others = rows.scatter(1, classes[:, None], -math.inf).logsumexp(dim=1)
        inside, outside = regions.flatten(1), 1 - regions.flatten(1)
        claim = mask[queries].flatten(1)
        total = total + (required_odds - target_logits + others).clamp_min(0).mean()
        total = total + ((F.softplus(-claim) * inside).sum(1) / inside.sum(1).clamp_min(1)).mean()
        total = total + OUTSIDE * ((F.softplus(claim) * outside).sum(1) / outside.sum(1).clamp_min(1)).mean()
    return total


def _pairs(scores: Tensor) -> list[tuple[int, int]]:
    """Pair rows with columns, the highest score first, each row and each column at most once."""
    remaining, pairs = scores.clone(), []
    for _ in range(min(remaining.shape)):
        row, column = divmod(int(remaining.argmax()), remaining.shape[1])
        pairs.append((row, column))
        remaining[row], remaining[:, column] = -math.inf, -math.inf
    return pairs
