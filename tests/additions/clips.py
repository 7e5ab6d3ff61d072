"""Add a task of a project whose only input is a clip of five axes."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mmexport.adapters.parts import Backbone
from mmexport.adapters.specs import InputSpec, OutputSpec
from mmexport.registry import ADAPTERS


@ADAPTERS.register_module()
class Clips(Backbone):
    """Give the mean map of a clip (N, 2, C, H, W): the picture and the picture turned over."""

    task = 'clips'
    input_specs = (InputSpec('clip', ('batch', 'time', 'channel', 'height', 'width')),)

    @property
    def specs(self) -> tuple[OutputSpec, ...]:
        return (OutputSpec('mean', 'float32', ('batch', 'class', 'h', 'w'), 'map'),)

    def inputs_of(self, picture: Tensor) -> tuple[Tensor, ...]:
        return (torch.stack([picture, picture.flip(-1)], dim=1),)

    def normalized(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return inputs

    def raw(self, clip: Tensor) -> tuple[Tensor, ...]:
        maps = self.model.decode_head(self.model.extract_feat(clip.flatten(0, 1)))
        return (maps.unflatten(0, (-1, 2)).mean(dim=1),)

    def notes(self) -> dict[str, Any]:
        return {}
