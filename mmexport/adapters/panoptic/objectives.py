"""Choose target segments on a scene, and measure a mask classifier's distance to them.

Targets are queries, each with a class and a region of its own. A semantic objective would leave a panoptic head with fewer kept segments
than it had, because a segment is kept by thresholds of its own.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ..objectives import pairs

# Queries (K) of one image, the class that each shall have (K), and the region that shall be its own (K, H, W).
SegmentTargets = tuple[Tensor, Tensor, Tensor]
# How many queries an objective cares for.
QUERIES = 25
# In log odds: by how much a class shall pass the threshold, and how much nearer a seen class must be to be preferred to a wanted one.
CLASS_MARGIN, SEEN = 0.5, 3.0
# Claims outside a query's region weigh this much more than gaps inside.
OUTSIDE = 4.0


def segment_targets(cls_logits: Tensor, masks: Tensor, target_classes: set[int], threshold: float) -> SegmentTargets:
    """Assign target classes to queries (Q, C + 1). Confident queries keep their class; each other wanted class gets the nearest free
    query.

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
    for row, column in pairs(nearest)[:max(QUERIES - len(chosen), 4)]:
        chosen[int(free[row])] = int(missing[column])
    queries, classes = (torch.tensor(list(part), device=masks.device) for part in (chosen, chosen.values()))
    chosen_masks = masks[queries]
    level = chosen_masks.flatten(1).sort(dim=1).values[:, int(chosen_masks[0].numel() * max(0.0, 1 - 1.2 / len(chosen_masks)))]
    winner = (chosen_masks - level[:, None, None]).argmax(dim=0)
    return queries, classes, F.one_hot(winner, len(chosen_masks)).permute(2, 0, 1).to(masks)


def panoptic_objective(cls_logits: Tensor, masks: Tensor, targets: Sequence[SegmentTargets], threshold: float) -> Tensor:
    """Measure how far chosen queries are from the class threshold, and masks from regions."""
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
