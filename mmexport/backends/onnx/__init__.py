"""Lower to ONNX."""
from .backend import ONNX

__all__ = ['ONNX']
