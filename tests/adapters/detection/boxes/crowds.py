"""Draw candidates as a crowded picture gives them, and what rounding makes of them."""
from __future__ import annotations

import torch
from torch import Tensor

from mmexport.adapters.detection.boxes.candidates import Candidates
from mmexport.adapters.detection.boxes.evidence import score_slack

SCALE = 10.0


def crowd(seed: int, count: int = 90) -> Candidates:
    """Return overlapping boxes in groups, many with the same or nearly the same score, some with the same place."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(12, 2, generator=generator) * 80 + 20
    of_group = torch.randint(12, (count,), generator=generator)
    sides = 20 + 10 * torch.rand(count, 2, generator=generator)
    middles = centres[of_group] + 8 * torch.randn(count, 2, generator=generator)
    boxes = torch.cat([middles - sides / 2, middles + sides / 2], dim=1).clamp(0, 100)
    boxes[::9] = torch.tensor([0.0, 0.0, 100.0, 100.0])
    scores = torch.rand(count, generator=generator)
    scores[::2] = (scores[::2] * 12).round() / 12 + 1e-5 * torch.randn(len(scores[::2]), generator=generator)
    labels = torch.randint(2, (count,), generator=generator)
    scores = scores.clamp(0.001, 0.999)
    return Candidates(boxes[None], scores[None], labels[None], scores[None] > 0.05)


def rounded(candidates: Candidates, generator: torch.Generator) -> Candidates:
    """Return the candidates as a file might compute them: scores off by their slack, overlaps by what the tolerance allows."""
    def noise(like: Tensor) -> Tensor:
        return 2 * torch.rand(like.shape, generator=generator) - 1

    scores = candidates.scores + 0.95 * score_slack(candidates.scores, SCALE) * noise(candidates.scores)
    sides = (candidates.boxes[..., 2:] - candidates.boxes[..., :2]).repeat(1, 1, 2)
    return candidates._replace(scores=scores, boxes=candidates.boxes + 2e-5 * sides * noise(candidates.boxes), valid=scores > 0.05)
