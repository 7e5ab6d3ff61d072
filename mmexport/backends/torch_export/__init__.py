"""Lower to a torch.export archive."""
from .backend import TorchExport

__all__ = ['TorchExport']
