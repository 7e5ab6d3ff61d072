"""Make a small model, and files of it."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1))


def save(path: Path, content: Any) -> Path:
    torch.save(content, path)
    return path
