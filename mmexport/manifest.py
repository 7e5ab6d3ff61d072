"""What a lowered file says about itself."""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from .adapters import Adapter
from .adapters.base import AXES
from .patching import Applied


def describe(adapter: Adapter, example: Tensor, applied: Sequence[Applied], versions: dict[str, Any], config: str,
             checkpoint: str | None) -> dict[str, Any]:
    """Inputs, outputs, dtypes, dynamic axes, preprocessing, classes and versions, as plain JSON-able data."""
    guard = adapter.guard
    return dict(
        mmexport=1, task=adapter.task, outputs_of=adapter.outputs,
        inputs=[dict(name='image', dtype='float32', axes=AXES, traced=list(example.shape), dynamic=list(guard.dynamic),
                     ranges={name: list(limits) for name, limits in guard.ranges.items()}, multiple_of=guard.multiple_of,
                     fixed=guard.fixed_sides)],
        outputs=[spec.as_dict() for spec in adapter.specs],
        num_classes=adapter.num_classes, classes=adapter.classes, preprocessing=adapter.preprocess.describe(), **adapter.notes(),
        config=Path(config).name, checkpoint=None if checkpoint is None else Path(checkpoint).name,
        patches=[row.name for row in applied if row.skipped is None], lowered_on=str(example.device), versions=versions)
