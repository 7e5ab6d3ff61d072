"""Define a tiny graph of deformable convolution alone. It has positions inside, at the border and outside."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .forms import deform_conv2d


class ConvProbe(nn.Module):
    """Apply modulated deformable convolution: image (N, 3, 16, 16) -> (N, 6, 8, 8), two groups of offsets, stride 2."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.register_buffer('weight', torch.randn(6, 4, 3, 3, generator=generator), persistent=False)
        self.register_buffer('spread', 3 * torch.randn(54, 3, 1, 1, generator=generator), persistent=False)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        weight: Any = self.weight
        spread: Any = self.spread
        offsets = F.conv2d(F.avg_pool2d(image, 2), spread)
        x = torch.cat([image, image.roll(1, 1)[:, :1]], dim=1)
        return (deform_conv2d(x, offsets[:, :36], weight, None, offsets[:, 36:].sigmoid(), (2, 2), (1, 1), (1, 1), 1, 2),)
