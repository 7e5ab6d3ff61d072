from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def load(file: Path, device: torch.device) -> Callable[..., Any]:
    if device.type != 'cuda':
        raise ValueError('TensorRT engines run on the GPU that they were compiled for; verify with --device cuda')
    # Registers the engines' class, without which the file cannot be read.
    import torch_tensorrt
    return torch_tensorrt.load(str(file)).module()  # type: ignore[no-any-return]
