"""``torch.export``: a ``.pt2`` file that any Python with the same torch loads, without the model's source."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..adapters import Adapter
from ..artifact import Artifact
from ..registry import BACKENDS
from .base import Backend
from .program import exported_program, ranges, silenced, unavailable
from .torchscript import INSIDE

FILE = 'model.pt2'


@BACKENDS.register_module()
class TorchExport(Backend):
    """Lower with ``torch.export``, batch, height and width open.

    The weights follow the device on which the program is loaded (the library's own ``move_to_device_pass``, see the runner).
    """

    name = 'torch_export'

    def unavailable(self) -> str | None:
        return unavailable()

    def lower(self, adapter: Adapter, example: Tensor, folder: Path, manifest: dict[str, Any]) -> Artifact:
        dynamic = manifest['inputs'][0]['dynamic']
        program = exported_program(adapter, example, dynamic)
        manifest = {**manifest, 'backend': self.name,
                    'torch_export': dict(torch=torch.__version__, strict=False, ranges=ranges(example, dynamic),
                                         nodes=len(program.graph.nodes))}
        folder.mkdir(parents=True, exist_ok=True)
        with silenced():
            torch.export.save(program, folder / FILE, extra_files={INSIDE: json.dumps(manifest)})
        artifact = Artifact(self.name, folder / FILE, manifest)
        artifact.write_manifest()
        return artifact
