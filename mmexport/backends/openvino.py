"""OpenVINO: IR files for Intel and AMD processors, from the exported program."""
from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..adapters import Adapter
from ..artifact import Artifact
from ..errors import LoweringError, last_line
from ..registry import BACKENDS
from .base import Backend
from .program import exported_program, ranges, silenced, unavailable

FILE = 'model.xml'


@BACKENDS.register_module()
class OpenVINO(Backend):
    """Lower with ``openvino.convert_model``; weights stay float32 in the file.

    It is compiled with ``INFERENCE_PRECISION_HINT=f32`` when it is checked: the default may pick bfloat16, an error of 1e-2.
    """

    name = 'openvino'

    def unavailable(self) -> str | None:
        if find_spec('openvino') is None:
            return 'openvino not installed: pip install "mmexport[openvino]" or pip install openvino'
        return unavailable()

    def lower(self, adapter: Adapter, example: Tensor, folder: Path, manifest: dict[str, Any]) -> Artifact:
        import openvino
        dynamic = manifest['inputs'][0]['dynamic']
        program = exported_program(adapter, example, dynamic, deformable_attention='grid')
        try:
            with torch.no_grad(), silenced():
                model = openvino.convert_model(program)
        except Exception as exc:
            raise LoweringError(f'OpenVINO cannot convert {type(adapter.model).__name__}: {last_line(exc)}') from exc
        for port, spec in zip(model.outputs, adapter.specs, strict=True):
            port.get_tensor().set_names({spec.name})
        manifest = {**manifest, 'backend': self.name,
                    'openvino': dict(version=openvino.__version__, compile=dict(INFERENCE_PRECISION_HINT='f32'),
                                     ranges=ranges(example, dynamic), ops=len(model.get_ops()))}
        folder.mkdir(parents=True, exist_ok=True)
        openvino.save_model(model, str(folder / FILE), compress_to_fp16=False)
        artifact = Artifact(self.name, folder / FILE, manifest)
        artifact.write_manifest()
        return artifact
