"""Load and run a plain trace."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def load(file: Path, device: torch.device) -> Callable[..., Any]:
    module = torch.jit.load(str(file), map_location=device)
    return lambda image: module(image)  # type: ignore[no-any-return]
