"""Find the options and limits of torch's TorchScript-based ONNX exporter. They changed between versions."""
from __future__ import annotations

import inspect
from typing import Any

import torch

from ....utils.skipped import skip

OPSET = 18


def exporter_options() -> dict[str, Any]:
    """Return the option that asks for the TorchScript-based exporter; torch 2.4 and older have no other one, and no such option."""
    return dict(dynamo=False) if 'dynamo' in inspect.signature(torch.onnx.export).parameters else {}


def default_opset() -> int:
    """Return 18, or the largest opset of the TorchScript-based exporter if that is lower.

    Tried on torch 2.1.2 (``torch/onnx/_constants.py``, ``ONNX_MAX_OPSET``: 17), 2.8.0, 2.13.0 (``ONNX_TORCHSCRIPT_EXPORTER_MAX_OPSET``)
    and 2.14.1. Without such a number 17 is taken, which every exporter from torch 2.1 writes.
    """
    try:
        from torch.onnx import _constants
        largest = next(int(vars(_constants)[name]) for name in ('ONNX_TORCHSCRIPT_EXPORTER_MAX_OPSET', 'ONNX_MAX_OPSET')
                       if name in vars(_constants))
    except Exception as exc:
        skip("the largest opset of torch's TorchScript-based exporter", f'{type(exc).__name__}: {exc}', 'opset 17 is written')
        return OPSET - 1
    return min(OPSET, largest)
