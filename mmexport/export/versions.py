"""List the versions of everything that can change a result, for manifests and reports."""
from __future__ import annotations

import platform
from typing import Any

import torch

from ..adapters import task_packages
from ..backends.building import format_packages
from ..compat import provide_mmcv_ext
from ..compat.mmcv_ext import called_kernels
from ..compat.packages import installed_version, mmcv_distribution

# Beside torch, mmcv, what models come from, and what a file goes through after torch.
VERSIONED = ('mmexport', 'mmengine', 'torchvision', 'numpy')


def versions() -> dict[str, Any]:
    """Return the versions by name.

    ``mmcv_ops`` says whether mmcv's ops are compiled, ``reference_kernels`` which of mmexport's own were called instead.
    """
    result: dict[str, Any] = {'python': platform.python_version(), 'torch': torch.__version__, 'mmcv_ops': provide_mmcv_ext()}
    if kernels := called_kernels():
        result['reference_kernels'] = kernels
    name, version = mmcv_distribution()
    result[name] = version
    result.update({package: its for package in (*VERSIONED, *task_packages(), *format_packages()) if (its := installed_version(package))})
    return result
