"""Load and run an OpenVINO model on the CPU."""
from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

# What a file can be computed in, below which other rules hold.
PACKAGES = ('openvino',)
PRECISIONS = ('bfloat16',)

# Where a file says in what it is to compute.
PLACE = ('mmexport', 'precision')


def open_openvino() -> Any:
    """Return the module openvino, imported without its telemetry package, for which it has a stub.

    Its import alone sends an event and writes ``~/intel``.
    """
    hidden = 'openvino' not in sys.modules and 'openvino_telemetry' not in sys.modules
    if hidden:
        sys.modules['openvino_telemetry'] = None  # type: ignore[assignment]
    try:
        import openvino as module
        if hidden:
            import openvino.tools.ovc  # noqa: F401
    finally:
        if hidden:
            del sys.modules['openvino_telemetry']
    return module


def ready() -> None:
    """Import the runtime."""
    open_openvino()


def load(file: Path, device: torch.device) -> Callable[..., Any]:
    if device.type != 'cpu':
        raise ValueError(f'OpenVINO runs on the CPU here, not on {device}')
    core = open_openvino().Core()
    model = core.read_model(str(file))
    # The default may pick bfloat16 on processors that have it, which is an error of 1e-2.
    hint = model.get_rt_info([*PLACE]).astype(str) if model.has_rt_info([*PLACE]) else 'f32'
    compiled = core.compile_model(model, 'CPU', {'INFERENCE_PRECISION_HINT': hint, 'INFERENCE_NUM_THREADS': torch.get_num_threads()})
    return Compiled(compiled)


class Compiled:
    """Run a model that OpenVINO compiled for this CPU."""

    def __init__(self, compiled: Any) -> None:
        self.compiled = compiled

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        answers = self.compiled([tensor.numpy() for tensor in inputs])
        return tuple(torch.from_numpy(answers[port].copy()) for port in self.compiled.outputs)


def names(runner: Any) -> Mapping[str, list[set[str]]]:
    compiled = runner.compiled
    return {'inputs': [port.get_names() for port in compiled.inputs], 'outputs': [port.get_names() for port in compiled.outputs]}
