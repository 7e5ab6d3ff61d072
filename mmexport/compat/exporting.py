"""Tell whether ``torch.export`` runs a model: ``torch.compiler.is_exporting`` is new in torch 2.7."""
from __future__ import annotations

import torch
from torch import Tensor


def is_exporting(tensor: Tensor) -> bool:
    """Return whether `tensor` is an input of a program that is being exported; before torch 2.7 only if one of its sizes is open."""
    asked = getattr(torch.compiler, 'is_exporting', None)
    if asked is not None:
        return bool(asked())
    return any(isinstance(side, torch.SymInt) for side in tensor.shape)
