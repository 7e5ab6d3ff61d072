"""Formats a model can be lowered to; one file each."""
from .base import Backend, build_backend
from .torchscript import TorchScript

__all__ = ['Backend', 'TorchScript', 'build_backend']
