"""Lower to ONNX: standard operators only, open sizes, checked by ONNX Runtime."""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...adapters.specs import InputSpec
from ...errors import ConfigError, LoweringError
from ...registry import BACKENDS
from ..exported.from_trace import NeedsTrace, TraceBackend, is_large
from ..exported.internals.onnx_exporter import OPSET, default_opset
from .graph import lowest_ir, name_axes, nodes
from .half import halved
from .internals.converting import converted
from .internals.loops import has_loops, translates_loops
from .runner import open_onnxruntime
from .trtexec import trtexec_line

if TYPE_CHECKING:
    from torch.export import ExportedProgram

PRECISIONS = {'fp32': 'float32', 'fp16': 'float16'}
WHY_18 = ('18: ONNX Runtime has had CUDA kernels for the GridSample of opsets 16 to 19 for long and for 20 and 22 only lately (it falls '
          'back to the CPU without a warning), and TensorRT has been wrong at 20')


@BACKENDS.register_module()
class ONNX(TraceBackend):
    """Lower with ``torch.onnx.export``.

    Args:
        opset: of the standard domain, the only one that is used. None takes 18, or the largest that the exporter writes if that is lower.
        dynamo: True goes through ``torch.export``, False through ``torch.jit.trace`` (the TorchScript-based exporter). None takes
            ``torch.export`` where the installed torch leaves sizes open in it.
        simplify: let onnxslim fold what it can. What is verified is the simplified file.
        precision: ``fp16`` halves the file, see `half` for what stays in float32; it is judged by the rules of float16.
    """

    name = 'onnx'
    file = 'model.onnx'
    packages = ('onnxruntime', 'onnx', 'onnxscript')
    repro = 'torch.onnx.export({exported}, dynamo=True, opset_version=18)\n'

    def __init__(self, opset: int | None = None, dynamo: bool | None = None, simplify: bool = False, precision: str = 'fp32') -> None:
        if precision not in PRECISIONS:
            raise ConfigError(f"ONNX: precision is {' or '.join(PRECISIONS)}, not {precision!r}")
        self.dynamo, self.simplify, self.precision = self.choose(dynamo), simplify, precision
        self.opset = int(opset or (OPSET if self.dynamo else default_opset()))
        self.why = 'asked for' if opset and opset != OPSET else WHY_18 if self.opset == OPSET else \
            f'the TorchScript-based exporter of torch {torch.__version__} writes no larger one'

    @property
    def computes_in(self) -> str:
        return PRECISIONS[self.precision]

    def unavailable(self) -> str | None:
        needed = ['onnx', 'onnxruntime', *(['onnxscript'] if self.dynamo else []), *(['onnxslim'] if self.simplify else [])]
        missing = [name for name in needed if find_spec(name) is None]
        if missing:
            return f'{", ".join(missing)} not installed: pip install "mmexport[onnx]" or pip install {" ".join(missing)}'
        return super().unavailable()

    def convert(self, program: ExportedProgram, folder: Path, names: Sequence[str], inputs: Sequence[InputSpec]) -> Any:
        # The exporter may ask the runtime about operators.
        open_onnxruntime()
        if has_loops(program) and not translates_loops():
            raise NeedsTrace(f"torch {torch.__version__}'s exporter of programs has no translation of while_loop")
        return converted(program, self.opset, names, [spec.name for spec in inputs])

    def copied(self, converted: Any) -> Any:
        import onnx
        copy = onnx.ModelProto()
        copy.CopyFrom(converted)
        return copy

    def cut(self, converted: Any, count: int) -> Any:
        del converted.graph.output[count:]
        return converted

    def write(self, converted: Any, folder: Path, names: Sequence[str], manifest: dict[str, Any]) -> dict[str, Any]:
        proto, half = self._finished(converted, list(names), manifest['inputs'])
        if foreign := sorted({node.domain for node in nodes(proto)} - {'', 'ai.onnx'}):
            raise LoweringError(f'the graph has operators that are no standard ones, of {", ".join(foreign)}')
        written = next(entry.version for entry in proto.opset_import if entry.domain in ('', 'ai.onnx'))
        if written != self.opset:
            raise LoweringError(f'opset {self.opset} was asked for and the exporter wrote {written}: ask for opset={written}, or for the '
                                'TorchScript-based exporter by dynamo=False')
        # The lowest version of the format that has this opset: ONNX Runtime 1.17 reads 9 at most.
        proto.ir_version = min(proto.ir_version, lowest_ir(proto))
        manifest['precision'] = self.computes_in
        manifest[self.name].update(opset=self.opset, ir=proto.ir_version, why=self.why, dynamo=self.dynamo,
                                   domains=sorted({entry.domain or 'ai.onnx' for entry in proto.opset_import}), **half,
                                   simplified=self.simplify, nodes=sum(1 for _ in nodes(proto)),
                                   trtexec=trtexec_line(self.file, manifest['inputs']))
        self._save(proto, folder / self.file, manifest)
        return manifest

    def _finished(self, proto: Any, names: list[str], inputs: Sequence[Mapping[str, Any]]) -> tuple[Any, dict[str, Any]]:
        """Simplify the model and name its open axes. It is converted to float16 if that was asked for."""
        if self.simplify:
            import onnxslim
            proto = onnxslim.slim(proto)
        output_names = [output.name for output in proto.graph.output]
        if output_names != names:
            raise LoweringError(f'the outputs of the graph are {", ".join(output_names)}, and should be {", ".join(names)}')
        proto, half = halved(proto) if self.precision == 'fp16' else (proto, {})
        name_axes(proto, inputs)
        return proto, half

    def _save(self, proto: Any, path: Path, manifest: dict[str, Any]) -> None:
        import onnx
        del proto.metadata_props[:]
        for key in ('task', 'classes', 'preprocessing', 'versions', 'outputs', 'config', 'checkpoint', 'onnx'):
            proto.metadata_props.add(key=key, value=json.dumps(manifest.get(key)))
        large = is_large(proto)
        onnx.save(proto, str(path), save_as_external_data=large, location=f'{path.name}.data' if large else None)
        # Infers all shapes too, and fails where that does.
        onnx.checker.check_model(str(path), full_check=True)
