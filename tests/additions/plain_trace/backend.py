"""Add a format of a user's project: the trace as it is, neither frozen nor optimized."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmexport.adapters import Adapter
from mmexport.artifact import Artifact
from mmexport.backends import Backend
from mmexport.backends.examples import inputs_for
from mmexport.registry import BACKENDS


@BACKENDS.register_module()
class PlainTrace(Backend):
    """Write ``model.trace``."""

    name = 'plain_trace'

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def lower(self, adapter: Adapter, example: Tensor, folder: Path, manifest: dict[str, Any]) -> Artifact:
        folder.mkdir(parents=True, exist_ok=True)
        with torch.no_grad():
            traced = torch.jit.trace(adapter, inputs_for(adapter, example), check_trace=False)
        torch.jit.save(traced, str(folder / 'model.trace'))
        return self.finished(folder / 'model.trace', self.signed(manifest, dict(scale=self.scale)))
