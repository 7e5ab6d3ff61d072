"""Add a task of a user's project with two inputs, of which one has five axes: how a picture differs from earlier ones."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmexport.adapters.parts import Backbone
from mmexport.adapters.specs import IMAGE, InputSpec, OutputSpec
from mmexport.registry import ADAPTERS

FRAMES = 2


@ADAPTERS.register_module()
class Moving(Backbone):
    """Return ``likeness`` (N, T, C): of each channel of the backbone's last map, the product with that of each earlier picture."""

    task = 'motion'
    input_specs = (InputSpec('earlier', ('batch', 'time', 'channel', 'height', 'width')), IMAGE)
    kinds = {'likeness': Path(__file__).with_name('likeness.py')}

    @property
    def specs(self) -> tuple[OutputSpec, ...]:
        return (OutputSpec('likeness', 'float32', ('batch', 'time', 'channel'), 'likeness'),)

    def inputs_of(self, picture: Tensor) -> tuple[Tensor, ...]:
        # The camera has moved by some pixels from picture to picture.
        return torch.stack([picture.roll(3 * (number + 1), dims=3) for number in range(FRAMES)], dim=1), picture

    def normalized(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return inputs

    def raw(self, earlier: Tensor, image: Tensor) -> tuple[Tensor, ...]:
        now = super().raw(image)[-1]
        before = super().raw(earlier.flatten(0, 1))[-1].unflatten(0, (image.shape[0], FRAMES))
        return ((before * now[:, None]).mean(dim=(3, 4)),)

    def notes(self) -> dict[str, Any]:
        return {}
