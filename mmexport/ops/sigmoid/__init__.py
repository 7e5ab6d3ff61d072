"""Compute probabilities that are ranked, for a runtime whose Sigmoid does not keep the order."""
from ..op import Op, register
from .forms import sigmoid

__all__ = ['sigmoid']

register(Op('sigmoid', default='operator', takes={'onnx': 'exp'}))
