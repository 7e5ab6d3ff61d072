"""Export OpenMMLab 2.x models, and check the files against the unpatched model."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = '0.1.0'
__all__ = ['Exporter', 'Report', 'instance_data', 'patched', '__version__']

if TYPE_CHECKING:
    from .adapters.detection.results import instance_data
    from .export.exporter import Exporter
    from .patching import patched
    from .report import Report

_HOMES = {'Exporter': 'export.exporter', 'instance_data': 'adapters.detection.results', 'patched': 'patching', 'Report': 'report'}


def __getattr__(name: str) -> Any:
    """Import on first use, so that ``import mmexport`` and ``--help`` cost no import of torch."""
    if name in _HOMES:
        import importlib
        return getattr(importlib.import_module(f'{__name__}.{_HOMES[name]}'), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
