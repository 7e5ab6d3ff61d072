"""Add an op of a user's project with two forms, and the patch that calls it."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mmexport.ops.op import EXPORTED, Op, form_of, register
from mmexport.patching import Patch
from mmexport.registry import PATCHES

register(Op('rectified', default='operator', takes={EXPORTED: 'comparison', 'onnx': 'product'}))


def rectified(x: Tensor) -> Tensor:
    form = form_of('rectified')
    if form == 'operator':
        return torch.relu(x)
    return torch.where(x > 0, x, 0.0) if form == 'comparison' else x * (x > 0).to(x.dtype)


@PATCHES.register_module()
class Rectified(Patch):
    """Rectify in the form that the format takes."""

    targets = ('torch.nn.ReLU.forward',)
    upstream = 'torch 2'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda module, x: rectified(x)
