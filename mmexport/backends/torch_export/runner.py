"""Load and run a program of torch.export."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

# What of a file runs when it is loaded: it is loaded only with --trust. torch.export.load unpickles, and has sympy evaluate the sizes of
# the graph, which are strings of the file.
RUNS = 'pickles, and sizes that are evaluated as Python'


def load(file: Path, device: torch.device) -> Callable[..., Any]:
    program = torch.export.load(str(file))
    if any(tensor.device != device for tensor in program.state_dict.values()):
        from torch.export.passes import move_to_device_pass
        program = move_to_device_pass(program, str(device))
    return program.module()  # type: ignore[no-any-return]
