"""Choose the adapter of a model."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..errors import UnsupportedModelError
from ..registry import ADAPTERS
from .base import Adapter

# Models that an adapter would fit by what they have, and whose outputs mean something else.
UNSUPPORTED = frozenset({'DepthEstimator'})


def task_packages() -> list[str]:
    """Return the distributions that models of all tasks come from."""
    ADAPTERS.import_from_location()
    return list(dict.fromkeys(package for cls in ADAPTERS.module_dict.values() for package in cls.packages))


def build_adapter(model: nn.Module, task: str | None = None, outputs: str = 'final', normalize: bool = False) -> Adapter:
    """Return the adapter for `task`, a registered class name. Without one, the first that knows the architecture is taken.

    Raises:
        UnsupportedModelError: none does.
    """
    if any(cls.__name__ in UNSUPPORTED for cls in type(model).__mro__):
        raise UnsupportedModelError(f'{type(model).__name__} predicts depth, which is no task of mmexport yet: its values are no labels')
    ADAPTERS.import_from_location()
    tasks = ADAPTERS.module_dict
    if task is not None:
        if task not in tasks:
            raise UnsupportedModelError(f'export.task is {task!r}; there are {", ".join(tasks)}')
        if not tasks[task].matches(model):
            raise UnsupportedModelError(f'export.task is {task!r}, which does not fit a {type(model).__name__}; leave it out to have it '
                                        'inferred')
        return tasks[task](model, outputs, normalize)  # type: ignore[no-any-return]
    for cls in tasks.values():
        if cls.automatic and cls.matches(model):
            return cls(model, outputs, normalize)  # type: ignore[no-any-return]
    raise UnsupportedModelError(f'no adapter knows {type(model).__name__} (there are {", ".join(tasks)}); write one, register it '
                                'with @ADAPTERS.register_module() and name its module in custom_imports')


def adapter_for(model: nn.Module, section: Mapping[str, Any], outputs: str, device: torch.device) -> Adapter:
    """Return the adapter that the ``export`` section of a config asks for, on `device`.

    Raises:
        ConfigError: the number of class names is not that of the model's classes, so that the manifest would be wrong.
    """
    adapter = build_adapter(model, section['task'], outputs, bool(section['inputs']['normalize']))
    _ = adapter.classes
    return adapter.to(device)
