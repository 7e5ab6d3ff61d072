"""Lower through ``torch.jit.trace`` and ``torch.onnx.export(dynamo=False)``, where the installed torch has no program with open sizes."""
from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from ...adapters import Adapter
from ...artifact import Artifact
from ...errors import LoweringError, last_line
from ...ops.op import operators, with_forms
from ..base import TRACED, Run, name_of
from ..examples import input_specs_of, inputs_for, open_sizes
from ..raw_outputs import with_raw
from .from_program import ProgramBackend
from .internals.onnx_exporter import default_opset, exporter_options
from .internals.open_trace import sizes_left_open
from .program import silenced, unavailable

# Protocol buffers end at 2 GB; beyond, weights lie in a file beside.
LIMIT = 1_900_000_000


class NeedsTrace(LoweringError):
    """Report a part of the program that is not translated; a trace has another."""


class TraceBackend(ProgramBackend):
    """Convert an exported program, or the ONNX graph of a trace.

    Attributes:
        dynamo: True for the program, False for the trace.
        opset: of the traced graph.
    """

    dynamo: bool
    opset: int
    why_traced = ''
    cuts = True

    def choose(self, dynamo: bool | None) -> bool:
        """Return `dynamo`, or for None whether the installed torch makes programs with open sizes."""
        dynamo = unavailable() is None if dynamo is None else dynamo
        if not dynamo:
            # Instance attributes: a class whose instances lower in two ways has the repro of the program.
            options = ''.join(f', {name}={value}' for name, value in exporter_options().items())
            self.repro = f'torch.onnx.export(Part().eval(), inputs, "part.onnx", opset_version={default_opset()}{options})\n'
            self.repro_intermediate = TRACED
        return dynamo

    def _by_trace(self, reason: str) -> TraceBackend:
        """Return this backend with the trace in place of the program."""
        changed = copy.copy(self)
        changed.dynamo, changed.why_traced = changed.choose(False), reason
        return changed

    def from_proto(self, proto: Any) -> Any:
        """Convert the traced ONNX graph to what `write` takes; the graph itself if that is what it takes."""
        return proto

    def lowered_example(self, example: Tensor, dynamic: Sequence[str], multiple: int) -> Tensor:
        return super().lowered_example(example, dynamic, multiple) if self.dynamo else example

    def unavailable(self) -> str | None:
        return super().unavailable() if self.dynamo else None

    def _lower(self, adapter: Adapter, example: Tensor, folder: Path, manifest: dict[str, Any], **facts: Any) -> Artifact:
        if self.dynamo:
            try:
                return super()._lower(adapter, example, folder, manifest, **facts)
            except NeedsTrace as exc:
                return self._by_trace(str(exc))._lower(adapter, example, folder, manifest, **facts)
        dynamic = open_sizes(manifest['inputs'])
        names, specs = [spec.name for spec in adapter.specs], input_specs_of(adapter)
        with with_raw(adapter) as raw:
            both = [*names, *(str(spec['name']) for spec in raw)]
            axes = {spec.name: {index: name for name, index in spec.open_axes(dynamic).items()} for spec in specs}
            proto = traced_graph(adapter, inputs_for(adapter, example), both, axes, self.opset, self.forms)
        graph = self.from_proto(proto)
        reason = self.why_traced or unavailable() or 'asked for by dynamo=False'
        signed = self.signed(manifest, dict(torch=torch.__version__, exporter='torch.onnx.export, TorchScript-based', why_traced=reason,
                                            **facts))
        folder.mkdir(parents=True, exist_ok=True)
        if not raw:
            return self._written(graph, folder, names, signed, adapter)
        return self._written_with_raw(graph, folder, names, signed, raw, adapter)

    def attempt(self, part: nn.Module, inputs: tuple[Tensor, ...], moving: Sequence[Sequence[int]]) -> Run:
        if self.dynamo:
            return super().attempt(part, inputs, moving)
        with torch.no_grad():
            answers = [f'answer_{number}' for number in range(len(part(*inputs)))]
        axes: dict[str, dict[int, str]] = {f'input_{number}': {} for number in range(len(inputs))}
        self.from_proto(traced_graph(part, inputs, answers, axes, self.opset, self.forms))
        return self._traced(part, inputs)  # type: ignore[no-any-return]

    def intermediate(self, adapter: Adapter, example: Tensor, dynamic: Sequence[str]) -> tuple[str, Run]:
        if self.dynamo:
            return super().intermediate(adapter, example, dynamic)
        return 'traced', self._traced(adapter, inputs_for(adapter, example))

    def _traced(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> Any:
        with torch.no_grad(), silenced(), with_forms(**self.forms):
            return torch.jit.trace(module, inputs, check_trace=False)


def traced_graph(module: nn.Module, inputs: tuple[Tensor, ...], names: list[str], axes: dict[str, dict[int, str]], opset: int,
                 forms: dict[str, str]) -> Any:
    """Return the ONNX model (a ``ModelProto``) that the TorchScript-based exporter writes.

    Args:
        names: of the outputs.
        axes: the open axes of each input by its name.

    Raises:
        LoweringError: it cannot; the cause is chained.
    """
    import onnx
    with TemporaryDirectory() as folder, torch.no_grad(), silenced(), with_forms(**forms), sizes_left_open():
        draft = Path(folder) / 'model.onnx'
        for each in operators():
            torch.onnx.register_custom_op_symbolic(each.name, each.traced_onnx, opset)
        try:
            torch.onnx.export(module, inputs, str(draft), opset_version=opset, input_names=list(axes), output_names=names,
                              dynamic_axes=axes, **exporter_options())
        except Exception as exc:
            raise LoweringError(f'torch.onnx.export of {name_of(module)} with torch {torch.__version__} failed: {type(exc).__name__}: '
                                f'{last_line(exc)}') from exc
        finally:
            for each in operators():
                torch.onnx.unregister_custom_op_symbolic(each.name, opset)
        return with_axes_apart(onnx.load(draft))


def with_axes_apart(proto: Any) -> Any:
    """Return `proto` with a name of its own for every open axis of an output.

    Names of an input's axes stay. The exporter names those of several maps alike where it does not know their sizes (torch 2.1.2), and
    ONNX Runtime then takes them for one size and reuses memory that is too small.
    """
    of_inputs = {axis.dim_param for value in proto.graph.input for axis in value.type.tensor_type.shape.dim}
    for value in proto.graph.output:
        for number, axis in enumerate(value.type.tensor_type.shape.dim):
            if axis.dim_param and axis.dim_param not in of_inputs:
                axis.dim_param = f'{value.name}_{number}'
    return proto


def is_large(proto: Any) -> bool:
    """Return whether weights must lie in a file beside the graph; ``ByteSize`` itself fails beyond 2 GB."""
    return sum(len(tensor.raw_data) for tensor in proto.graph.initializer) > LIMIT
