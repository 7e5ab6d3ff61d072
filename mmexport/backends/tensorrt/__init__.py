"""Lower to Torch-TensorRT."""
from .backend import TensorRT

__all__ = ['TensorRT']
