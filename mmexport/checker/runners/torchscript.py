from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def load(file: Path, device: torch.device) -> Callable[..., Any]:
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        module = torch.jit.load(str(file), map_location=device)
    return lambda image: module(image)  # type: ignore[no-any-return]
