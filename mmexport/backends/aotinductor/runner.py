"""Load and run an AOTInductor package."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

# What of a file runs when it is loaded: it is loaded only with --trust.
RUNS = 'machine code'


def load(file: Path, device: torch.device) -> Callable[..., Any]:
    # Registers the loader's classes, which torch.export alone does not import.
    import torch._inductor
    index = -1 if device.index is None else device.index
    try:
        package: Callable[..., Any] = torch._inductor.aoti_load_package(str(file), device_index=index)
    except AttributeError:
        # torch 2.10 reads torch._inductor.codecache here, and does not import it.
        import torch._inductor.codecache
        package = torch._inductor.aoti_load_package(str(file), device_index=index)
    made_for = package.get_metadata().get('AOTI_DEVICE_KEY', device.type)  # type: ignore[attr-defined]
    if made_for != device.type:
        raise ValueError(f'this package was compiled for {made_for} and runs only there; compile it on a machine with {device.type}')
    # A package assumes the memory layout of its example and does not check it.
    return lambda *inputs: package(*(tensor.contiguous() for tensor in inputs))
