"""Lower to OpenVINO: IR files for Intel and AMD processors, from the exported program, or from ONNX where there is none."""
from __future__ import annotations

import operator
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ...adapters.specs import IMAGE, InputSpec
from ...errors import ConfigError
from ...registry import BACKENDS
from ..exported.internals.decomposing import decomposed_by
from ..onnx.from_trace import OPSET, TraceBackend, default_opset, is_large
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

    def convert(self, program: ExportedProgram, folder: Path, names: Sequence[str], inputs: Sequence[InputSpec] = (IMAGE,)) -> Any:
        model = open_openvino().convert_model(_as_it_reads(program))
        for port, spec in zip(model.inputs, inputs, strict=True):
            port.get_tensor().set_names({spec.name})
        for port, name in zip(model.outputs, names, strict=True):
            port.get_tensor().set_names({name})
        return model

    def cut(self, made: Any, count: int) -> Any:
        for port in list(made.outputs)[count:]:
            made.remove_result(port.get_node())
        return made

    def write(self, made: Any, folder: Path, names: Sequence[str], manifest: dict[str, Any]) -> dict[str, Any]:
        openvino = open_openvino()
        hint, manifest['precision'] = HINTS[self.precision]
        made.set_rt_info(hint, [*PLACE])
        manifest[self.name].update(version=openvino.__version__, compile=dict(INFERENCE_PRECISION_HINT=hint), ops=len(made.get_ops()))
        openvino.save_model(made, str(folder / self.file), compress_to_fp16=False)
        return manifest


def _as_it_reads(program: ExportedProgram) -> ExportedProgram:
    """Return the decomposed `program` without what OpenVINO 2026.4 cannot read; convert_model decomposes it itself."""
    as_ever = program.run_decompositions

    def run_decompositions(*args: Any, **kwargs: Any) -> ExportedProgram:
        done = as_ever(*args, **kwargs)
        _without_mod(done.graph)
        for spec, answer in zip(done.graph_signature.output_specs, _told_apart(done.graph), strict=True):
            spec.arg.name = answer.name  # type: ignore[union-attr]
        done.graph_module.recompile()
        return done

    return decomposed_by(program, run_decompositions)


def _without_mod(graph: fx.Graph) -> None:
    """Replace remainders of sizes, ``a % b``, by ``a - a // b * b``; Twins pads by one."""
    for node in graph.find_nodes(op='call_function', target=operator.mod):
        size, by = node.args
        with graph.inserting_before(node):
            whole = graph.call_function(operator.mul, (graph.call_function(operator.floordiv, (size, by)), by))
            node.replace_all_uses_with(graph.call_function(operator.sub, (size, whole)))
        graph.erase_node(node)


def _told_apart(graph: fx.Graph) -> list[fx.Node]:
    """Make every output a distinct tensor, because OpenVINO merges clones."""
    end = graph.output_node()
    answers: list[Any] = list(end.args[0])  # type: ignore[arg-type]
    tensors: set[fx.Node] = set()
    for place, answer in enumerate(answers):
        tensor = answer
        while tensor.target in (torch.ops.aten.clone.default, torch.ops.aten.alias.default):
            tensor = tensor.args[0]
        if tensor in tensors:
            operands = (tensor, tensor) if answer.meta['val'].dtype == torch.bool else (tensor, 1)
            identity = torch.ops.aten.logical_and.default if answer.meta['val'].dtype == torch.bool else torch.ops.aten.mul.Scalar
            with graph.inserting_before(end):
                answers[place] = graph.call_function(identity, operands)
            answers[place].meta.update(answer.meta)
        tensors.add(tensor)
    end.args = (tuple(answers),)
    return answers
