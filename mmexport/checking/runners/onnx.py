from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import quiet

CPU, CUDA = 'CPUExecutionProvider', 'CUDAExecutionProvider'
# What may be computed on the CPU of a graph that is asked for on CUDA: sizes, which shape operators read there.
SHAPE_OPS = frozenset({
    'Shape', 'Size', 'Gather', 'Concat', 'Slice', 'Squeeze', 'Unsqueeze', 'Cast', 'Constant', 'ConstantOfShape', 'Add', 'Sub', 'Mul', 'Div',
    'Mod', 'Range', 'Reshape', 'Identity', 'Min', 'Max', 'Equal', 'Less', 'Greater', 'LessOrEqual', 'GreaterOrEqual', 'Where', 'Not', 'And',
    'Or', 'Floor', 'Ceil', 'ReduceProd', 'ReduceMin', 'ReduceMax', 'ReduceSum', 'Neg', 'Abs', 'Expand', 'Split', 'Transpose', 'If'})


def ready() -> None:
    quiet.onnxruntime()


class Session:
    """An ONNX Runtime session on `device`, with the record of which operator runs where."""

    def __init__(self, file: Path, device: torch.device) -> None:
        onnxruntime = quiet.onnxruntime()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = torch.get_num_threads()
        options.add_session_config_entry('session.record_ep_graph_assignment_info', '1')
        wanted: list[Any] = [CPU]
        if device.type == 'cuda':
            # TF32 keeps 10 bits of a float32's 23; parity is measured without it.
            wanted = [(CUDA, {'device_id': str(device.index or 0), 'use_tf32': '0'}), CPU]
        self.session = onnxruntime.InferenceSession(str(file), options, providers=wanted)
        self.device = device
        if device.type == 'cuda' and CUDA not in self.session.get_providers():
            raise RuntimeError(f'ONNX Runtime did not take {CUDA} (it has {", ".join(self.session.get_providers())}): install '
                               'onnxruntime-gpu for this CUDA; it would have run on the CPU without a word')
        self._check_assignment()

    def _check_assignment(self) -> None:
        record = getattr(self.session, 'get_provider_graph_assignment_info', None)
        if record is None and self.device.type == 'cuda':
            raise RuntimeError('this ONNX Runtime keeps no record of which operator runs where; install a newer onnxruntime-gpu')
        self.placed = dict(assignment(record())) if record else {}
        strays = sorted(self.placed.get(CPU, set()) - SHAPE_OPS) if self.device.type == 'cuda' else []
        if strays:
            raise RuntimeError(f'asked for on CUDA, these run on the CPU: {", ".join(strays[:8])}; another opset may have CUDA kernels for '
                               'them (GridSample: 16 to 19)')

    def __call__(self, image: Tensor) -> tuple[Tensor, ...]:
        answers = self.session.run(None, {self.session.get_inputs()[0].name: image.cpu().numpy()})
        return tuple(torch.from_numpy(answer) for answer in answers)


def assignment(record: Iterable[Any]) -> Iterable[tuple[str, set[str]]]:
    """Provider -> operator types, from ONNX Runtime's own record."""
    found: dict[str, set[str]] = {}
    for part in record:
        nodes: Iterable[Any] = part.get_nodes()
        found.setdefault(part.ep_name, set()).update(str(node.op_type) for node in nodes)
    return found.items()


def load(file: Path, device: torch.device) -> Callable[..., Any]:
    return Session(file, device)


def facts(runner: Any) -> Mapping[str, Any]:
    return {'providers': {provider: len(kinds) for provider, kinds in runner.placed.items()}}
