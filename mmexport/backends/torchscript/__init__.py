"""Lower to TorchScript."""
from .backend import TorchScript

__all__ = ['TorchScript']
