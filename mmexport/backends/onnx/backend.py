"""Lower to ONNX: standard operators only, open sizes, checked by ONNX Runtime."""
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...adapters import Adapter
from ...adapters.specs import IMAGE, InputSpec
from ...artifact import Artifact
from ...errors import ConfigError, LoweringError, last_line
from ...ops.op import with_forms
from ...registry import BACKENDS
from ..base import Run, name_of
from ..examples import input_specs_of, inputs_for
from ..exported.from_program import ProgramBackend
from ..exported.program import silenced
from ..raw_outputs import raw_folder, raw_manifest, with_raw
from ..tensorrt.trtexec import trtexec_line
from .graph import name_axes, nodes
from .half import halved
from .internals import converted
from .open_trace import sizes_left_open
from .runner import open_onnxruntime

if TYPE_CHECKING:
    from torch.export import ExportedProgram

# Protocol buffers end at 2 GB; beyond, weights lie in a file beside.
LIMIT = 1_900_000_000
OPSET = 18
PRECISIONS = {'fp32': 'float32', 'fp16': 'float16'}
WHY_18 = ('18: ONNX Runtime has had CUDA kernels for the GridSample of opsets 16 to 19 for long and for 20 and 22 only lately (it falls '
          'back to the CPU without a word), and TensorRT has been wrong at 20')


@BACKENDS.register_module()
class ONNX(ProgramBackend):
    """Lower with ``torch.onnx.export``.

    Args:
        opset: of the standard domain, the only one that is used.
        dynamo: through ``torch.export``; False takes the old exporter, through ``torch.jit.trace``.
        simplify: let onnxslim fold what it can. What is verified is the simplified file.
        precision: ``fp16`` halves the file, see `onnx_half` for what stays in float32; it is judged by the rules of float16.
    """

    name = 'onnx'
    file = 'model.onnx'
    cuts = True
    packages = ('onnxruntime', 'onnx', 'onnxscript')
    repro = 'torch.onnx.export({exported}, dynamo=True, opset_version=18)\n'

    def __init__(self, opset: int = OPSET, dynamo: bool = True, simplify: bool = False, precision: str = 'fp32') -> None:
        if precision not in PRECISIONS:
            raise ConfigError(f"ONNX: precision is {' or '.join(PRECISIONS)}, not {precision!r}")
        self.opset, self.dynamo, self.simplify, self.precision = int(opset), dynamo, simplify, precision

    def unavailable(self) -> str | None:
        needed = ['onnx', 'onnxruntime', *(['onnxscript'] if self.dynamo else []), *(['onnxslim'] if self.simplify else [])]
        missing = [name for name in needed if find_spec(name) is None]
        if missing:
            return f'{", ".join(missing)} not installed: pip install "mmexport[onnx]" or pip install {" ".join(missing)}'
        return super().unavailable() if self.dynamo else None

    def _lower(self, adapter: Adapter, example: Tensor, folder: Path, manifest: dict[str, Any], **facts: Any) -> Artifact:
        if self.dynamo:
            return super()._lower(adapter, example, folder, manifest, **facts)
        dynamic = manifest['inputs'][0]['dynamic']
        names = [spec.name for spec in adapter.specs]
        specs = input_specs_of(adapter)
        with with_raw(adapter) as raw:
            both = [*names, *(str(spec['name']) for spec in raw)]
            proto = self._from_trace(adapter, inputs_for(adapter, example), both, {
                spec.name: {index: name for name, index in spec.open_axes(dynamic).items()} for spec in specs})
        signed = self.signed(manifest, dict(torch=torch.__version__, **facts))
        for place in (folder, *([raw_folder(folder)] if raw else [])):
            place.mkdir(parents=True, exist_ok=True)
        if raw:
            self._written(self.copied(proto), raw_folder(folder), both, raw_manifest(signed, raw), adapter)
        return self._written(self.cut(proto, len(names)), folder, names, signed, adapter)

    def attempt(self, part: nn.Module, inputs: tuple[Tensor, ...], moving: Sequence[Sequence[int]]) -> Run:
        if self.dynamo:
            return super().attempt(part, inputs, moving)
        with torch.no_grad():
            answers = [f'answer_{number}' for number in range(len(part(*inputs)))]
        self._from_trace(part, inputs, answers, {f'input_{number}': {} for number in range(len(inputs))})
        return self._traced(part, inputs)  # type: ignore[no-any-return]

    def intermediate(self, adapter: Adapter, example: Tensor, dynamic: Sequence[str]) -> tuple[str, Run]:
        if self.dynamo:
            return super().intermediate(adapter, example, dynamic)
        return 'traced', self._traced(adapter, inputs_for(adapter, example))

    def _traced(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
        with torch.no_grad(), silenced(), with_forms(**self.forms):
            return torch.jit.trace(module, inputs, check_trace=False)

    def convert(self, program: ExportedProgram, folder: Path, names: Sequence[str], inputs: Sequence[InputSpec] = (IMAGE,)) -> Any:
        # The exporter may ask the runtime about operators.
        open_onnxruntime()
        return converted(program, self.opset, names, [spec.name for spec in inputs])

    def _from_trace(self, module: nn.Module, inputs: tuple[Tensor, ...], names: list[str], axes: dict[str, dict[int, str]]) -> Any:
        import onnx
        with TemporaryDirectory() as folder, torch.no_grad(), silenced(), with_forms(**self.forms), sizes_left_open():
            draft = Path(folder) / self.file
            try:
                torch.onnx.export(module, inputs, str(draft), dynamo=False, opset_version=self.opset, input_names=list(axes),
                                  output_names=names, dynamic_axes=axes)
            except Exception as exc:
                raise LoweringError(f'torch.onnx.export of {name_of(module)} failed: {type(exc).__name__}: {last_line(exc)}') from exc
            return onnx.load(draft)

    def copied(self, made: Any) -> Any:
        import onnx
        copy = onnx.ModelProto()
        copy.CopyFrom(made)
        return copy

    def cut(self, made: Any, count: int) -> Any:
        del made.graph.output[count:]
        return made

    def write(self, made: Any, folder: Path, names: Sequence[str], manifest: dict[str, Any]) -> dict[str, Any]:
        proto, half = self._finished(made, list(names), manifest['inputs'])
        if foreign := sorted({node.domain for node in nodes(proto)} - {'', 'ai.onnx'}):
            raise LoweringError(f'the graph has operators that are no standard ones, of {", ".join(foreign)}')
        written = next(entry.version for entry in proto.opset_import if entry.domain in ('', 'ai.onnx'))
        if written != self.opset:
            raise LoweringError(f'opset {self.opset} was asked for and the exporter wrote {written}: ask for opset={written}, or for the '
                                'old exporter by dynamo=False')
        manifest['precision'] = PRECISIONS[self.precision]
        manifest[self.name].update(opset=self.opset, why=WHY_18 if self.opset == OPSET else 'asked for', dynamo=self.dynamo,
                                   domains=sorted({entry.domain or 'ai.onnx' for entry in proto.opset_import}), **half,
                                   simplified=self.simplify, nodes=sum(1 for _ in nodes(proto)),
                                   trtexec=trtexec_line(self.file, manifest['inputs']))
        self._save(proto, folder / self.file, manifest)
        return manifest

    def _finished(self, proto: Any, names: list[str], inputs: Sequence[Mapping[str, Any]]) -> tuple[Any, dict[str, Any]]:
        """Simplify the model and convert it to float16 if asked for, and name its open axes."""
        if self.simplify:
            import onnxslim
            proto = onnxslim.slim(proto)
        output_names = [output.name for output in proto.graph.output]
        if output_names != names:
            raise LoweringError(f'the graph answers {", ".join(output_names)}, and should answer {", ".join(names)}')
        proto, half = halved(proto) if self.precision == 'fp16' else (proto, {})
        name_axes(proto, inputs)
        return proto, half

    def _save(self, proto: Any, path: Path, manifest: dict[str, Any]) -> None:
        import onnx
        del proto.metadata_props[:]
        for key in ('task', 'classes', 'preprocessing', 'versions', 'outputs', 'config', 'checkpoint', 'onnx'):
            proto.metadata_props.add(key=key, value=json.dumps(manifest.get(key)))
        # ByteSize itself fails beyond 2 GB.
        large = sum(len(tensor.raw_data) for tensor in proto.graph.initializer) > LIMIT
        onnx.save(proto, str(path), save_as_external_data=large, location=f'{path.name}.data' if large else None)
        # Infers all shapes too, and fails where that does.
        onnx.checker.check_model(str(path), full_check=True)
