"""Lower to OpenVINO."""
from .backend import OpenVINO

__all__ = ['OpenVINO']
