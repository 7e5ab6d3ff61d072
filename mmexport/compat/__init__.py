"""Work around upstream defects, one small file each, without changing an installed file."""
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .mmcv_ext import provide_mmcv_ext
    from .packages import check_packages
    from .torchvision_ext import provide_torchvision_ops

__all__ = ['check_packages', 'provide_mmcv_ext', 'provide_torchvision_ops']
_MODULES = {'check_packages': 'packages', 'provide_mmcv_ext': 'mmcv_ext', 'provide_torchvision_ops': 'torchvision_ext'}


def __getattr__(name: str) -> Any:
    """Import a function when it is asked for: `mmexport doctor` imports this package where there is no torch."""
    if name not in _MODULES:
        raise AttributeError(f'module {__name__} has no attribute {name!r}')
    return getattr(import_module(f'.{_MODULES[name]}', __name__), name)
