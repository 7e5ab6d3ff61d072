"""Prepare a picture for an exported file, by its manifest alone, as a user of the folder does."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def network_input(picture: Any, manifest: dict[str, Any]) -> Tensor:
    """Return the normalised picture (C, H, W) of one (H, W, C), uint8, BGR."""
    tensor, rule = torch.as_tensor(picture).permute(2, 0, 1), manifest['preprocessing']
    mean, std = (torch.tensor(rule[name]).view(-1, 1, 1) for name in ('mean', 'std'))
    return ((tensor.flip(0) if rule['channel_order'] == 'RGB' else tensor) - mean) / std
