"""Redraw parameters that initialisation leaves constant. They would hide errors or disconnect a part of the network."""
from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

NORMS = (_BatchNorm, nn.GroupNorm, nn.LayerNorm)
# Residual branches that start at zero stay small: at full size, rounding grows tenfold on its way through a ResNet.
RESIDUAL = (0.2, 0.4)
# Biases with which most ReLUs give more than zero: a random network in which half of them give zero amplifies noise of 1e-6 to 1e-4.
OPEN = (1.0, 2.0)
# Regions of Sparse R-CNN, which begin as the whole picture, all of them: centres and sides as shares of the picture.
CENTRES, SIDES = (0.1, 0.9), (0.1, 0.9)


@torch.no_grad()
def randomise_constants(model: nn.Module, generator: torch.Generator) -> int:
    """Redraw constant parameters (`attention_weights`, `sampling_offsets`, embeddings, gates). The number of constant ones is returned."""
    count = 0
    for module in model.modules():
        proposals = getattr(module, 'init_proposal_bboxes', None)
        if isinstance(proposals, nn.Embedding):
            _uniform(proposals.weight[:, :2], *CENTRES, generator)
            _uniform(proposals.weight[:, 2:], *SIDES, generator)
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.is_floating_point() and bool((parameter == parameter.flatten()[0]).all()):
                _redraw(module, name, parameter, float(parameter.flatten()[0]), generator)
                count += 1
    return count


def _redraw(module: nn.Module, name: str, parameter: Tensor, value: float, generator: torch.Generator) -> None:
    if (parameter.dim() >= 2 and isinstance(module, (nn.Linear, _ConvNd))) or parameter.dim() == 4:
        _normal(parameter, 0.5 / math.sqrt(parameter[0].numel()), generator)
    elif parameter.dim() >= 2:
        _normal(parameter, 0.5 if isinstance(module, nn.Embedding) else 0.1, generator)
    elif isinstance(module, NORMS) and name == 'weight':
        _uniform(parameter, *((0.8, 1.2) if value else RESIDUAL), generator)
    elif isinstance(module, _BatchNorm):
        _uniform(parameter, *OPEN, generator)
    elif 'bias' in name:
        _normal(parameter, 0.05, generator)
    elif parameter.numel() == 1:
        parameter.fill_(value or 0.5)
    elif abs(value) < 0.1:
        _uniform(parameter, 0.1, 0.3, generator)


def _normal(parameter: Tensor, std: float, generator: torch.Generator) -> None:
    parameter.copy_(std * torch.randn(parameter.shape, generator=generator))


def _uniform(parameter: Tensor, low: float, high: float, generator: torch.Generator) -> None:
    parameter.copy_(low + (high - low) * torch.rand(parameter.shape, generator=generator))
