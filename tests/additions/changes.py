"""Add a task with final decisions: what changed in a picture since earlier ones, an input of five axes, two of them open."""
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.model import BaseModel
from mmseg.models import SegDataPreProcessor
from torch import Tensor, nn

from mmexport.adapters.base import Adapter
from mmexport.adapters.specs import IMAGE, InputSpec, OutputSpec
from mmexport.registry import ADAPTERS


class ChangeNet(BaseModel):
    """Compare a picture (N, 3, H, W) with earlier ones (N, T, 3, H, W), given as a pair to ``test_step``."""

    def __init__(self) -> None:
        super().__init__(data_preprocessor=SegDataPreProcessor(mean=[0, 0, 0], std=[1, 1, 1]))
        generator = torch.Generator().manual_seed(0)
        self.compare = nn.Conv2d(6, 8, 3, 2, 1)
        self.head = nn.Conv2d(8, 1, 1)
        for weights in self.parameters():
            weights.data = torch.randn(weights.shape, generator=generator) * 0.3

    def forward(self, inputs: tuple[Tensor, Tensor], data_samples: Any = None, mode: str = 'tensor') -> Any:
        image, earlier = inputs
        logits = self.head(F.relu(self.compare(torch.cat([image, earlier.amax(dim=1)], dim=1))))
        if mode == 'tensor':
            return logits
        return [SimpleNamespace(change=each) for each in F.interpolate(logits, image.shape[2:], mode='bilinear').sigmoid()]


@ADAPTERS.register_module()
class Changes(Adapter):
    """Return ``change`` (N, 1, H, W), a probability."""

    task = 'changes'
    input_specs = (IMAGE, InputSpec('earlier', ('batch', 'time', 'channel', 'height', 'width'), ranges=dict(time=(2, 8))))
    num_classes = 0

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        return isinstance(model, ChangeNet)

    @property
    def specs(self) -> tuple[OutputSpec, ...]:
        return self.raw_specs if self.outputs == 'raw' else (OutputSpec('change', 'float32', ('batch', 'class', 'height', 'width'), 'map'),)

    @property
    def raw_specs(self) -> tuple[OutputSpec, ...]:
        return (OutputSpec('logits', 'float32', ('batch', 'class', 'h', 'w'), 'map'),)

    def inputs_of(self, picture: Tensor) -> tuple[Tensor, ...]:
        # As many as the height gives, from 2 to 6.
        weights = torch.linspace(0.5, 1.5, 2 + picture.shape[2] % 5, device=picture.device)
        return picture, picture.flip(3)[:, None] * weights[None, :, None, None, None]

    def raw(self, image: Tensor, earlier: Tensor) -> tuple[Tensor, ...]:
        return (self.model((image, earlier)),)

    def final(self, raw: tuple[Tensor, ...], image: Tensor, earlier: Tensor) -> tuple[Tensor, ...]:
        return (F.interpolate(raw[0], image.shape[2:], mode='bilinear').sigmoid(),)

    def test_data(self, *inputs: Tensor) -> dict[str, Any]:
        return dict(inputs=inputs, data_samples=None)

    def read(self, samples: list[Any]) -> dict[str, Tensor]:
        return dict(change=torch.stack([sample.change for sample in samples]))
