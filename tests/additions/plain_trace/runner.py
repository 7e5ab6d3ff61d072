"""Load and run a plain trace."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def load(file: Path, device: torch.device) -> Callable[..., Any]:
    return torch.jit.load(str(file), map_location=device)  # type: ignore[no-any-return]
