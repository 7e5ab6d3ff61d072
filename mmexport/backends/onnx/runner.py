"""Load and run an ONNX file by ONNX Runtime."""
from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

# What a file can be computed in, below which other rules hold.
PACKAGES = ('onnxruntime',)
PRECISIONS = ('float16',)

CPU, CUDA = 'CPUExecutionProvider', 'CUDAExecutionProvider'
# What may be computed on the CPU of a graph that is asked for on CUDA: sizes, which shape operators read there.
SHAPE_OPS = frozenset({
    'Shape', 'Size', 'Gather', 'Concat', 'Slice', 'Squeeze', 'Unsqueeze', 'Cast', 'Constant', 'ConstantOfShape', 'Add', 'Sub', 'Mul', 'Div',
    'Mod', 'Range', 'Reshape', 'Identity', 'Min', 'Max', 'Equal', 'Less', 'Greater', 'LessOrEqual', 'GreaterOrEqual', 'Where', 'Not', 'And',
    'Or', 'Floor', 'Ceil', 'ReduceProd', 'ReduceMin', 'ReduceMax', 'ReduceSum', 'Neg', 'Abs', 'Expand', 'Split', 'Transpose', 'If'})

# TensorProto's numbers for float, float16, double and bfloat16.
FLOATS = frozenset({1, 10, 11, 16})


def open_onnxruntime() -> Any:
    """Return the module onnxruntime with telemetry off.

    Otherwise its first session writes a device id and a database under ``~/.cache/Microsoft``.
    """
    # Two environment variables: releases differ in which one they read (microsoft/onnxruntime, pull requests 27379 and 29843).
    for name in ('ORT_DISABLE_TELEMETRY', 'ORT_TELEMETRY_DISABLED'):
        os.environ.setdefault(name, '1')
    import onnxruntime as module
    module.disable_telemetry_events()
    return module


def ready() -> None:
    """Import the runtime."""
    open_onnxruntime()


class Session:
    """Run an ONNX Runtime session on `device`, and record which operator runs where."""

    def __init__(self, file: Path, device: torch.device) -> None:
        onnxruntime = open_onnxruntime()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = torch.get_num_threads()
        options.add_session_config_entry('session.record_ep_graph_assignment_info', '1')
        if in_half(file):
            # Its last step, a layout of convolutions, crashes the process on a Transpose before a MatMul in float16
            # (microsoft/onnxruntime#28392; 1.31.1 has it too).
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        providers: list[Any] = [CPU]
        if device.type == 'cuda':
            # TF32 keeps 10 bits of a float32's 23; parity is measured without it.
            providers = [(CUDA, {'device_id': str(device.index or 0), 'use_tf32': '0'}), CPU]
        self.session = onnxruntime.InferenceSession(str(file), options, providers=providers)
        self.device, self.file = device, file
        if device.type == 'cuda' and CUDA not in self.session.get_providers():
            raise RuntimeError(f'ONNX Runtime did not take {CUDA} (it has {", ".join(self.session.get_providers())}): install '
                               'onnxruntime-gpu for this CUDA; it would have run on the CPU without a warning')
        self._check_assignment()

    def _check_assignment(self) -> None:
        record = getattr(self.session, 'get_provider_graph_assignment_info', None)
        if record is None and self.device.type == 'cuda':
            raise RuntimeError('this ONNX Runtime keeps no record of which operator runs where; install a newer onnxruntime-gpu')
        placed = assignment(record()) if record else {}
        self.placed = {provider: {kind for _, kind in nodes} for provider, nodes in placed.items()}
        stray_operators = unexpected_cpu_operators(placed.get(CPU, ()), self.file) if self.device.type == 'cuda' else []
        if stray_operators:
            raise RuntimeError(f'asked for on CUDA, these run on the CPU: {", ".join(stray_operators[:8])}; another opset may have CUDA '
                               'kernels for them (GridSample: 16 to 19)')

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        names = [value.name for value in self.session.get_inputs()]
        answers = self.session.run(None, {name: tensor.cpu().numpy() for name, tensor in zip(names, inputs, strict=True)})
        return tuple(torch.from_numpy(answer) for answer in answers)


def in_half(file: Path) -> bool:
    """Return whether the manifest beside `file` says float16."""
    manifest = file.with_name('manifest.json')
    return manifest.is_file() and json.loads(manifest.read_text()).get('precision') == 'float16'


def assignment(record: Iterable[Any]) -> dict[str, set[tuple[str, str]]]:
    """Return by provider the names and operator types of its nodes. They come from ONNX Runtime's own record."""
    nodes_of: dict[str, set[tuple[str, str]]] = {}
    for part in record:
        nodes: Iterable[Any] = part.get_nodes()
        nodes_of.setdefault(part.ep_name, set()).update((str(node.name), str(node.op_type)) for node in nodes)
    return nodes_of


def unexpected_cpu_operators(nodes: Iterable[tuple[str, str]], file: Path) -> list[str]:
    """Return the types of the operators among `nodes` that compute more than sizes."""
    with_axes = tensor_nodes(file)
    return sorted({kind for name, kind in nodes if kind not in SHAPE_OPS or name in with_axes})


def tensor_nodes(file: Path) -> set[str]:
    """Return the names of the nodes in `file` whose outputs have two or more axes: sizes are scalars and lists.

    Empty without the package onnx, which a machine that only runs files need not have; then the operators' types alone are looked at.
    """
    try:
        import onnx
    except ImportError:
        return set()
    graph = onnx.load(str(file), load_external_data=False).graph
    large = {value.name for value in (*graph.value_info, *graph.output)
             if value.type.tensor_type.elem_type in FLOATS and len(value.type.tensor_type.shape.dim) > 1}
    return {node.name for node in graph.node if large.intersection(node.output)}


def load(file: Path, device: torch.device) -> Callable[..., Any]:
    return Session(file, device)


def names(runner: Any) -> Mapping[str, list[set[str]]]:
    session = runner.session
    return {'inputs': [{value.name} for value in session.get_inputs()], 'outputs': [{value.name} for value in session.get_outputs()]}


def facts(runner: Any) -> Mapping[str, Any]:
    return {'providers': {provider: len(kinds) for provider, kinds in runner.placed.items()}}
