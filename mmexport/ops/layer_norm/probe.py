"""Define a tiny graph of layer normalization alone. Its values lie close to their mean."""
from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .forms import layer_norm


class LayerNormProbe(nn.Module):
    """Apply layer normalization to rows: image (N, 3, 16, 16) -> (N, 3, 16, 16)."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 16), requires_grad=False)
        self.bias = nn.Parameter(torch.linspace(-0.1, 0.1, 16), requires_grad=False)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        return (layer_norm(F.layer_norm, 0.3 + 0.005 * image, (16,), self.weight, self.bias),)
