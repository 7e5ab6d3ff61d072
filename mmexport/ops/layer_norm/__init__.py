"""Compute layer normalization for a runtime that computes the variance in one pass."""
from ..op import Op, register
from .forms import layer_norm
from .probe import LayerNormProbe

__all__ = ['layer_norm']

register(Op('layer_norm', default='operator', takes={'onnx': 'operator'}, probed=('operator', 'centred'), probe=LayerNormProbe,
            axes=('batch', 'channel', 'height', 'width'), classes=frozenset({'LayerNorm'})))
