"""Add an op of a user's project with two forms, and the patch that calls it."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from mmexport.ops.op import EXPORTED, Op, form_of, register
from mmexport.patching import Patch
from mmexport.registry import PATCHES


def rectified(x: Tensor) -> Tensor:
    form = form_of('rectified')
    if form == 'operator':
        return torch.relu(x)
    if form == 'absolute':
        return x.abs()
    return torch.where(x > 0, x, 0.0) if form == 'comparison' else x * (x > 0).to(x.dtype)


class RectifiedProbe(nn.Module):
    """Rectify noise (N, 3, 16, 16): ``absolute``, which is tried first, is wrong there."""

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        return (rectified(image),)


register(Op('rectified', default='operator', takes={EXPORTED: 'absolute', 'torchscript': 'comparison'}, probed=('absolute', 'product'),
            probe=RectifiedProbe, axes=('batch', 'channel', 'height', 'width'), classes=frozenset({'ReLU'})))


@PATCHES.register_module()
class Rectified(Patch):
    """Rectify in the form that the format takes."""

    targets = ('torch.nn.ReLU.forward',)
    upstream = 'torch 2'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda module, x: rectified(x)
