"""Add a task of a user's project: how alike the channels of the backbone's last map are, an output of a kind of its own."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from mmexport.adapters.base import OutputSpec
from mmexport.adapters.parts import Backbone
from mmexport.registry import ADAPTERS


@ADAPTERS.register_module()
class Gram(Backbone):
    """Return ``gram`` (N, C, C) of the backbone's last map."""

    task = 'channel likeness'
    kinds = {'likeness': Path(__file__).with_name('likeness.py')}

    @property
    def specs(self) -> tuple[OutputSpec, ...]:
        return (OutputSpec('gram', 'float32', ('batch', 'channel', 'other'), 'likeness'),)

    def raw(self, image: Tensor) -> tuple[Tensor, ...]:
        rows = super().raw(image)[-1].flatten(2)
        return (rows @ rows.transpose(1, 2) / rows.shape[-1],)

    def notes(self) -> dict[str, Any]:
        return {}
