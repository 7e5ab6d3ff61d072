"""Compute layer normalization for runtimes whose variance is inexact.

ONNX Runtime up to 1.26 computes LayerNormalization's variance as mean(x²) - mean(x)² in float32. Of values that differ little from their
mean nothing is left of it: of 0.3 ± 0.005 the result is wrong by 1e-3 of its scale in 1.17.0, 1.23.2 and 1.26.0, by 1e-5 in 1.28.0 and by
1e-6 in 1.31.1. Segmenter's mask logits are such values.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from ..op import form_of


def layer_norm(original: Callable[..., Tensor], input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None,
               bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Compute layer normalization by torch's operator.

    In the form ``centred`` it gets `input` less its mean, which changes nothing but the rounding.
    """
    if form_of('layer_norm') == 'centred':
        dims = [-1 - number for number in range(len(normalized_shape))]
        input = input - input.mean(dims, keepdim=True)
    return original(input, normalized_shape, weight, bias, eps)
