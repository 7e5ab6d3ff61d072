"""Compute the logistic function with the order of its arguments kept.

ONNX Runtime's Sigmoid (seen in 1.31.1 on a CPU) is 0 below -18, twice the right value at -17, and at 17 less than at 16. Proposals
have scores that small, and they are ranked: which of two boxes suppresses the other then depends on the order in which they are listed.
"""
from __future__ import annotations

from torch import Tensor

from ..op import form_of


def sigmoid(logits: Tensor) -> Tensor:
    """Return 1 / (1 + exp(-logits)). The form ``exp`` is written so; the runtime computes it to 2e-7 of each value."""
    return 1 / (1 + (-logits).exp()) if form_of('sigmoid') == 'exp' else logits.sigmoid()
