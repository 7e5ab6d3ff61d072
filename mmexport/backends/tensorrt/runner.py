"""Load and run a program with TensorRT engines."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

# What of a file runs when it is loaded: it is loaded only with --trust.
RUNS = 'engines for one GPU, beside pickles'
# What a file can be computed in, below which other rules hold.
PACKAGES = ('torch', 'torch_tensorrt')
PRECISIONS = ('float16',)


def load(file: Path, device: torch.device) -> Callable[..., Any]:
    if device.type != 'cuda':
        raise ValueError('TensorRT engines run on the GPU that they were compiled for; verify with --device cuda')
    # Registers the engines' class, without which the file cannot be read.
    import torch_tensorrt
    return torch_tensorrt.load(str(file)).module()  # type: ignore[no-any-return]
