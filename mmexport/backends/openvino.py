"""OpenVINO: IR files for Intel and AMD processors, from the exported program."""
from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..adapters import Adapter
from ..checking import quiet
from ..registry import BACKENDS
from .from_program import ProgramBackend

if TYPE_CHECKING:
    from torch.export import ExportedProgram


@BACKENDS.register_module()
class OpenVINO(ProgramBackend):
    """Lower with ``openvino.convert_model``; weights stay float32 in the file.

    It is compiled with ``INFERENCE_PRECISION_HINT=f32`` when it is checked: the default may pick bfloat16, an error of 1e-2.
    """

    name = 'openvino'
    file = 'model.xml'
    runtime = 'openvino'
    forms = {'deformable_attention': 'grid'}

    def unavailable(self) -> str | None:
        if find_spec('openvino') is None:
            return 'openvino not installed: pip install "mmexport[openvino]" or pip install openvino'
        return super().unavailable()

    def convert(self, program: ExportedProgram, folder: Path, names: Sequence[str]) -> Any:
        model = quiet.openvino().convert_model(program)
        for port, name in zip(model.outputs, names, strict=True):
            port.get_tensor().set_names({name})
        return model

    def write(self, made: Any, folder: Path, adapter: Adapter, manifest: dict[str, Any]) -> dict[str, Any]:
        openvino = quiet.openvino()
        manifest[self.name].update(version=openvino.__version__, compile=dict(INFERENCE_PRECISION_HINT='f32'), ops=len(made.get_ops()))
        openvino.save_model(made, str(folder / self.file), compress_to_fp16=False)
        return manifest
