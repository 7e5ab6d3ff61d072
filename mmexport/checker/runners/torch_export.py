from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def load(file: Path, device: torch.device) -> Callable[..., Any]:
    program = torch.export.load(str(file))
    if any(tensor.device != device for tensor in program.state_dict.values()):
        from torch.export.passes import move_to_device_pass
        program = move_to_device_pass(program, str(device))
    return program.module()  # type: ignore[no-any-return]
