"""Add a task of a project whose only input is a clip of five axes, of which one of its own is open."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mmexport.adapters.parts import Backbone
from mmexport.adapters.specs import InputSpec, OutputSpec
from mmexport.registry import ADAPTERS


@ADAPTERS.register_module()
class Clips(Backbone):
    """Give the mean map of the pictures of a clip (N, T, C, H, W)."""

    task = 'clips'
    input_specs = (InputSpec('clip', ('batch', 'time', 'channel', 'height', 'width'), ranges=dict(time=(2, 6))),)

    @property
    def specs(self) -> tuple[OutputSpec, ...]:
        return (OutputSpec('mean', 'float32', ('batch', 'class', 'h', 'w'), 'map'),)

    def inputs_of(self, picture: Tensor) -> tuple[Tensor, ...]:
        # As many as the height gives, from 2 to 6, each darker than the one before, and turned over.
        weights = torch.linspace(1.0, 0.5, 2 + picture.shape[2] % 5, device=picture.device)
        return (picture.flip(3)[:, None] * weights[None, :, None, None, None],)

    def normalized(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return inputs

    def raw(self, clip: Tensor) -> tuple[Tensor, ...]:
        maps = self.model.decode_head(self.model.extract_feat(clip.flatten(0, 1)))
        return (maps.unflatten(0, clip.shape[:2]).mean(dim=1),)

    def notes(self) -> dict[str, Any]:
        return {}
