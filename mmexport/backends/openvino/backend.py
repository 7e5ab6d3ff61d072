"""Lower to OpenVINO: IR files for Intel and AMD processors, from the exported program, or from ONNX where there is none."""
from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ...adapters.specs import InputSpec
from ...errors import ConfigError
from ...registry import BACKENDS
from ..exported.from_trace import TraceBackend, is_large
from ..exported.internals.onnx_exporter import OPSET, default_opset
from .internals import extensions, rewritten_for_openvino
from .runner import PLACE, open_openvino

if TYPE_CHECKING:
    from torch.export import ExportedProgram

# The compiler's name of a precision, and the checker's.
HINTS = {'fp32': ('f32', 'float32'), 'bf16': ('bf16', 'bfloat16')}


@BACKENDS.register_module()
class OpenVINO(TraceBackend):
    """Lower with ``openvino.convert_model``; weights stay float32 in the file.

    It is compiled with ``INFERENCE_PRECISION_HINT=f32`` when it is checked: the default may pick bfloat16, an error of 1e-2.

    Args:
        precision: ``bf16`` compiles with that hint instead, and is judged by the rules of bfloat16. The file is the same, but for a note
            of it (``rt_info``); a processor without bfloat16 may compute in float32.
        dynamo: from the program of ``torch.export``, or for False from the ONNX graph of a trace. None takes the program where the
            installed torch leaves sizes open in it.
    """

    name = 'openvino'
    file = 'model.xml'
    packages = ('openvino',)
    repro = 'import openvino\n\nopenvino.convert_model({exported})\n'

    def __init__(self, precision: str = 'fp32', dynamo: bool | None = None) -> None:
        if precision not in HINTS:
            raise ConfigError(f"OpenVINO: precision is {' or '.join(HINTS)}, not {precision!r}")
        self.dynamo, self.precision, self.opset = self.choose(dynamo), precision, default_opset()

    @property
    def computes_in(self) -> str:
        return HINTS[self.precision][1]

    def unavailable(self) -> str | None:
        missing = [name for name in ('openvino', *([] if self.dynamo else ['onnx'])) if find_spec(name) is None]
        if missing:
            return f'{", ".join(missing)} not installed: pip install "mmexport[openvino]" or pip install {" ".join(missing)}'
        return super().unavailable()

    def from_proto(self, proto: Any) -> Any:
        """Convert the ONNX graph of a trace.

        OpenVINO 2026.4.1 reduces over all axes where ReduceLogSumExp, ReduceLogSum and ReduceL1 have them in an attribute, which they have
        below opset 18. torch 2.1 writes opset 17 at most, so its graph is converted to 18.
        """
        import onnx
        from onnx.version_converter import convert_version
        if self.opset < OPSET:
            proto = convert_version(proto, OPSET)
        with TemporaryDirectory() as folder:
            onnx.save(proto, Path(folder) / 'model.onnx', save_as_external_data=is_large(proto))
            return open_openvino().convert_model(Path(folder) / 'model.onnx')

    def convert(self, program: ExportedProgram, folder: Path, names: Sequence[str], inputs: Sequence[InputSpec]) -> Any:
        model = open_openvino().convert_model(rewritten_for_openvino(program), extension=extensions())
        for port, spec in zip(model.inputs, inputs, strict=True):
            port.get_tensor().set_names({spec.name})
        for port, name in zip(model.outputs, names, strict=True):
            port.get_tensor().set_names({name})
        return model

    def cut(self, converted: Any, count: int) -> Any:
        for port in list(converted.outputs)[count:]:
            converted.remove_result(port.get_node())
        return converted

    def write(self, converted: Any, folder: Path, names: Sequence[str], manifest: dict[str, Any]) -> dict[str, Any]:
        openvino = open_openvino()
        hint, manifest['precision'] = HINTS[self.precision][0], self.computes_in
        converted.set_rt_info(hint, [*PLACE])
        manifest[self.name].update(version=openvino.__version__, compile=dict(INFERENCE_PRECISION_HINT=hint), ops=len(converted.get_ops()))
        openvino.save_model(converted, str(folder / self.file), compress_to_fp16=False)
        return manifest
