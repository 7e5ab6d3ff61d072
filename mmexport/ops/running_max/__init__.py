"""Compute running maxima of maps, in the form that a format takes: ONNX has no operator for them."""
from ..op import Op, register
from .forms import running_max

__all__ = ['running_max']

register(Op('running_max', default='cummax', takes={'onnx': 'doubling', 'openvino': 'doubling'}))
