"""Export the first part of a model alone: its backbone, or backbone and neck."""
from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..errors import UnsupportedModelError
from ..registry import ADAPTERS
from .base import Adapter, OutputSpec


@ADAPTERS.register_module()
class Backbone(Adapter):
    """Return ``feature_0``, ``feature_1``, ... of the backbone, whatever `outputs` says.

    It is taken only where ``export.task`` asks for it.
    """

    task = 'features'
    automatic = False
    part: ClassVar[str] = 'backbone'

    def __init__(self, model: nn.Module, outputs: str = 'raw', normalize: bool = False) -> None:
        super().__init__(model, 'raw', normalize)
        self.ranks: list[int] = []

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        return all(isinstance(getattr(model, name, None), nn.Module) for name in cls.part.split('+'))

    @property
    def num_classes(self) -> int:
        return 0

    @property
    def specs(self) -> tuple[OutputSpec, ...]:
        if not self.ranks:
            with torch.no_grad():
                self.raw(next(self.model.parameters()).new_zeros(1, self.channels, 256, 256))
        return tuple(OutputSpec(f'feature_{number}', 'float32', *_axes(rank)) for number, rank in enumerate(self.ranks))

    def raw(self, image: Tensor) -> tuple[Tensor, ...]:
        features = image
        for name in self.part.split('+'):
            features = getattr(self.model, name)(features)
        tensors = tuple(_tensors(features))
        if not tensors:
            raise UnsupportedModelError(f'the {self.part} of {type(self.model).__name__} returns no float tensor; export another part, '
                                        'or the whole model')
        self.ranks = [feature.dim() for feature in tensors]
        return tensors

    def notes(self) -> dict[str, Any]:
        return {'part': self.part}


@ADAPTERS.register_module()
class BackboneNeck(Backbone):
    """Return the features of backbone and neck, as `Backbone` does."""

    part = 'backbone+neck'


def _axes(rank: int) -> tuple[tuple[str, ...], str]:
    """Return axes and kind: feature maps are counted by pixel, token lists by token."""
    if rank == 4:
        return ('batch', 'channel', 'h', 'w'), 'pixels'
    return ('batch', *(f'axis_{number}' for number in range(1, rank))), 'queries' if rank >= 3 else 'map'


def _tensors(outputs: Any) -> list[Tensor]:
    """Return the float tensors of a module's outputs, in order."""
    if isinstance(outputs, Tensor):
        return [outputs] if outputs.is_floating_point() else []
    if isinstance(outputs, dict):
        outputs = list(outputs.values())
    return [tensor for item in outputs for tensor in _tensors(item)] if isinstance(outputs, (list, tuple)) else []
