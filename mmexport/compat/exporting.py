"""Tell which exporter runs a model, on any torch from 2.1: ``torch.compiler.is_exporting`` is new in torch 2.7."""
from __future__ import annotations

import torch
from torch import Tensor


def is_exporting(tensor: Tensor) -> bool:
    """Return whether `tensor` is an input of a program that is being exported; before torch 2.7 only if one of its sizes is open."""
    asked = getattr(torch.compiler, 'is_exporting', None)
    if asked is not None:
        return bool(asked())
    return any(isinstance(side, torch.SymInt) for side in tensor.shape)


def is_in_onnx_trace() -> bool:
    """Return whether the TorchScript-based ONNX exporter runs the model."""
    asked = getattr(torch.onnx, 'is_in_onnx_export', None)
    return bool(asked()) if asked is not None else False
