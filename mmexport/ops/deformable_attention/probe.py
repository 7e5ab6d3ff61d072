"""Define a tiny graph of deformable attention alone. It has positions inside, at the border and outside."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .forms import sampled


class AttentionProbe(nn.Module):
    """Apply deformable attention: image (N, 3, 16, 16) -> (N, 64, 6), two levels, two heads, two points."""

    def __init__(self) -> None:
        super().__init__()
        side = (torch.arange(8) + 0.5) / 8
        self.register_buffer('places', torch.stack([side.repeat(8), side.repeat_interleave(8)], dim=-1), persistent=False)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        small = F.avg_pool2d(image, 2)
        rows = torch.cat([image.flatten(2), small.flatten(2)], dim=2).transpose(1, 2)
        query = small.flatten(2).transpose(1, 2)
        offsets = (6 * torch.cat([query.roll(turn, 1) for turn in range(6)], dim=2))[..., :16].unflatten(2, (2, 2, 2, 2))
        weights = torch.cat([query, -query, query.roll(3, 1)], dim=2)[..., :8].unflatten(2, (2, 4)).softmax(-1).unflatten(3, (2, 2))
        places: Any = self.places
        reference = places[None, :, None].expand(image.shape[0], -1, 2, -1)
        return (sampled(torch.stack([rows, -rows], dim=2), [(16, 16), (8, 8)], offsets, weights, reference),)
