"""Lower to Torch-TensorRT: the exported program with TensorRT engines, for the NVIDIA GPU that it is compiled on.

Written from the library's documentation, and tested as far as that is possible without a GPU; docs/formats.md lists what was run.
Source: https://docs.pytorch.org/TensorRT/py_api/dynamo.html
"""
from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...adapters import Adapter
from ...adapters.specs import FOLLOWING, InputSpec
from ...artifact import Artifact
from ...errors import ConfigError, LoweringError
from ...registry import BACKENDS
from ..examples import inputs_for
from ..exported.from_program import ProgramBackend
from ..exported.valid_sizes import RANGES, input_nodes

if TYPE_CHECKING:
    from torch.export import ExportedProgram


@BACKENDS.register_module()
class TensorRT(ProgramBackend):
    """Compile the exported program with ``torch_tensorrt.dynamo.compile``.

    Args:
        precision: ``fp32``, or ``fp16``, which lets TensorRT choose per layer.
        require_full_compilation: fail where an operator would stay in PyTorch; the manifest says how many do.
        min_block_size: how many operators in a row are worth an engine of their own.
        largest: batch, height and width that the engines are built for, at most; memory is reserved for them. None takes the example's
            batch and twice its sides.
    """

    name = 'tensorrt'
    file = 'model.ep'
    packages = ('torch_tensorrt', 'tensorrt')
    traced: Sequence[tuple[int, ...]] | None = None

    def __init__(self, precision: str = 'fp32', require_full_compilation: bool = False, min_block_size: int = 5,
                 largest: Sequence[int] | None = None) -> None:
        if precision not in ('fp32', 'fp16'):
            raise ConfigError(f"TensorRT: precision is 'fp32' or 'fp16', not {precision!r}")
        self.precision, self.require_full_compilation, self.min_block_size = precision, require_full_compilation, int(min_block_size)
        self.largest = largest

    def _lower(self, adapter: Adapter, example: Tensor, folder: Path, manifest: dict[str, Any], **facts: Any) -> Artifact:
        # The program was made with another example, see `generic`; the engines are tuned for the user's.
        self.traced = [tuple(tensor.shape) for tensor in inputs_for(adapter, example)]
        return super()._lower(adapter, example, folder, manifest, **facts)

    @property
    def computes_in(self) -> str:
        return 'float16' if self.precision == 'fp16' else 'float32'

    def unavailable(self) -> str | None:
        if find_spec('torch_tensorrt') is None:
            return ('torch_tensorrt not installed: pip install torch-tensorrt, in the version of the installed torch, on a machine with an '
                    'NVIDIA GPU')
        if not torch.cuda.is_available():
            return 'torch_tensorrt builds engines on the GPU that they are for, and torch sees none here'
        return super().unavailable()

    def convert(self, program: ExportedProgram, folder: Path, names: Sequence[str],
                inputs: Sequence[InputSpec]) -> dict[str, Any]:
        import torch_tensorrt
        examples = list(program.example_inputs[0])
        if examples[0].device.type != 'cuda':
            raise LoweringError('TensorRT compiles for a GPU: --device cuda')
        started = time.perf_counter()
        reduced = dict(enable_autocast=True, autocast_low_precision_type=torch.float16) if self.precision == 'fp16' else {}
        module = torch_tensorrt.dynamo.compile(
            program, arg_inputs=self._inputs(torch_tensorrt, program, inputs), disable_tf32=True, use_explicit_typing=True,
            require_full_compilation=self.require_full_compilation, min_block_size=self.min_block_size, **reduced)
        open_axes = tuple({axis: torch.export.Dim.AUTO for axis in _open(node)} for node in input_nodes(program))
        torch_tensorrt.save(module, str(folder / self.file), output_format='exported_program', arg_inputs=examples,
                            dynamic_shapes=open_axes if any(open_axes) else None)
        engines, left = engines_of(module)
        return dict(engines=engines, left_to_torch=left, compile_s=round(time.perf_counter() - started, 1))

    def write(self, converted: dict[str, Any], folder: Path, names: Sequence[str], manifest: dict[str, Any]) -> dict[str, Any]:
        import torch_tensorrt
        manifest['precision'] = self.computes_in
        manifest[self.name].update(converted, version=torch_tensorrt.__version__, precision=self.precision, tf32=False,
                                   require_full_compilation=self.require_full_compilation, min_block_size=self.min_block_size,
                                   gpu=torch.cuda.get_device_name())
        return manifest

    def _inputs(self, torch_tensorrt: Any, program: ExportedProgram, inputs: Sequence[InputSpec]) -> list[Any]:
        engine_inputs = []
        examples = program.example_inputs[0]
        traced = self.traced or [tuple(example.shape) for example in examples]
        for spec, node, example, shape in zip(inputs, input_nodes(program), examples, traced, strict=True):
            least, usual, most = shapes(shape, [spec.axes[axis] for axis in _open(node)], self.largest, spec)
            engine_inputs.append(torch_tensorrt.Input(min_shape=least, opt_shape=usual, max_shape=most, dtype=example.dtype,
                                                      name=spec.name))
        return engine_inputs


def shapes(example: tuple[int, ...], dynamic: Sequence[str], largest: Sequence[int] | None,
           spec: InputSpec) -> tuple[tuple[int, ...], ...]:
    """Return the smallest, usual and largest shape of the engines: TensorRT reserves memory for the largest."""
    least, most = list(example), list(example)
    for name in dynamic:
        axis = spec.axes.index(name)
        if name in spec.ranges:
            least[axis], most[axis] = spec.ranges[name]
            continue
        least[axis] = min(RANGES[name][0], example[axis])
        limit = largest[FOLLOWING.index(name)] if largest is not None else example[axis] * (1 if name == 'batch' else 2)
        most[axis] = max(int(limit), example[axis])
    return tuple(least), example, tuple(most)


def engines_of(module: nn.Module) -> tuple[int, int]:
    """Return how many engines a compiled module holds, and how many operators stay in PyTorch."""
    children = dict(module.named_children())
    engines = sum('TensorRT' in type(child).__name__ or 'TRT' in type(child).__name__ for child in children.values())
    graphs = [child.graph for child in children.values() if isinstance(child, torch.fx.GraphModule)]
    return engines, sum(node.op == 'call_function' for graph in graphs for node in graph.nodes)


def _open(node: Any) -> list[int]:
    """Return the axes of an input that are open."""
    return [axis for axis, side in enumerate(node.meta['val'].shape) if isinstance(side, torch.SymInt)]
