from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import quiet


def load(file: Path, device: torch.device) -> Callable[..., Any]:
    if device.type != 'cpu':
        raise ValueError(f'OpenVINO runs on the CPU here, not on {device}')
    # The default may pick bfloat16 on processors that have it: an error of 1e-2 that no table would explain.
    compiled = quiet.openvino().Core().compile_model(str(file), 'CPU', {'INFERENCE_PRECISION_HINT': 'f32',
                                                                'INFERENCE_NUM_THREADS': torch.get_num_threads()})

    def run(image: Tensor) -> tuple[Tensor, ...]:
        answers = compiled(image.numpy())
        return tuple(torch.from_numpy(answers[port].copy()) for port in compiled.outputs)

    return run
