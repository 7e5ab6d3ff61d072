"""``torch.export``: a ``.pt2`` file that any Python with the same torch loads, without the model's source."""
from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..registry import BACKENDS
from .cutting import cut_program
from .from_program import ProgramBackend
from .program import silenced
from .tensorrt_ops import SOURCE, lacking
from .torchscript import INSIDE

if TYPE_CHECKING:
    from torch.export import ExportedProgram


@BACKENDS.register_module()
class TorchExport(ProgramBackend):
    """Lower with ``torch.export``, batch, height and width open.

    The weights follow the device on which the program is loaded (the library's own ``move_to_device_pass``, see the runner).
    """

    name = 'torch_export'
    file = 'model.pt2'
    cuts = True

    def convert(self, program: ExportedProgram, folder: Path, names: Sequence[str]) -> ExportedProgram:
        return program

    def cut(self, made: ExportedProgram, count: int) -> ExportedProgram:
        return cut_program(made, count)

    def write(self, made: ExportedProgram, folder: Path, names: Sequence[str], manifest: dict[str, Any]) -> dict[str, Any]:
        manifest[self.name].update(nodes=len(made.graph.nodes), tensorrt=dict(lacks=lacking(made), source=SOURCE))
        with silenced():
            torch.export.save(made, folder / self.file, extra_files={INSIDE: json.dumps(manifest)})
        return manifest
