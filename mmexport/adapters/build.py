"""Choose the adapter of a model."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ..errors import ConfigError, UnsupportedModelError, suggestion
from ..registry import ADAPTERS
from .base import Adapter
from .mmdeploy_names import with_mmdeploy_names


def task_packages() -> list[str]:
    """Return the distributions that models of all tasks come from."""
    ADAPTERS.import_from_location()
    return list(dict.fromkeys(package for cls in ADAPTERS.module_dict.values() for package in cls.packages))


def check_task(task: str | None) -> None:
    """Raise for the name of a task that is not registered.

    Raises:
        UnsupportedModelError: it is not.
    """
    ADAPTERS.import_from_location()
    tasks = ADAPTERS.module_dict
    if task is not None and task not in tasks:
        raise UnsupportedModelError(f'export.task is {task!r}{suggestion(task, tasks)}; there are {", ".join(tasks)}')


def build_adapter(model: nn.Module, task: str | None = None, outputs: str = 'final', normalize: bool = False,
                  names: str | None = None, img_shape: bool = False, masks: str = 'crop') -> Adapter:
    """Return the adapter for `task`, a registered class name. Without one, the first that knows the architecture is
    taken, or a subclass of it that does.

    Args:
        names: ``mmdeploy`` for its names of inputs and outputs.
        img_shape: where each picture of a padded batch ends is an input.
        masks: of detections, ``crop`` for those in the cells of their boxes, ``paste`` for those of the whole picture.

    Raises:
        UnsupportedModelError: none does.
        ConfigError: the names do not fit the outputs, the task takes no padded pictures, or it has no masks to paste.
    """
    cls = _class_for(model, task)
    if img_shape:
        cls = _variant(cls, 'img_shape', 'export.inputs.img_shape=True')
    if masks == 'paste':
        cls = _variant(cls, 'paste', "export.outputs.masks='paste'")
    return (with_mmdeploy_names(cls) if names else cls)(model, outputs, normalize)


def _variant(cls: type[Adapter], name: str, option: str) -> type[Adapter]:
    """Return the variant of an adapter that an option of the config asks for.

    Raises:
        ConfigError: its task has none; the message names those that have.
    """
    variant = cls.variant(name)
    if variant is None:
        tasks = sorted({known.task for known in ADAPTERS.module_dict.values() if known.variant(name) is not None})
        raise ConfigError(f'{option} is known for the tasks {", ".join(tasks)}, and this is {cls.task}: leave it out')
    return variant


def _class_for(model: nn.Module, task: str | None) -> type[Adapter]:
    check_task(task)
    tasks = ADAPTERS.module_dict
    if task is not None:
        if not tasks[task].matches(model):
            raise UnsupportedModelError(f'export.task is {task!r}, which does not fit a {type(model).__name__}; leave it out to have it '
                                        'inferred')
        return tasks[task]  # type: ignore[no-any-return]
    known_by = [cls for cls in tasks.values() if cls.automatic and cls.matches(model)]
    for cls in known_by:
        # A subclass knows more of the model than its base.
        if not any(other is not cls and issubclass(other, cls) for other in known_by):
            return cls  # type: ignore[no-any-return]
    raise UnsupportedModelError(f'no adapter knows {type(model).__name__} (there are {", ".join(tasks)}); write one, register it '
                                'with @ADAPTERS.register_module() and name its module in custom_imports')


def adapter_for(model: nn.Module, section: Mapping[str, Any], outputs: str, device: torch.device) -> Adapter:
    """Return the adapter that the ``export`` section of a config asks for, on `device`.

    Raises:
        ConfigError: the number of class names is not that of the model's classes, so that the manifest would be wrong.
    """
    adapter = build_adapter(model, section['task'], outputs, bool(section['inputs']['normalize']), section['names'],
                            bool(section['inputs']['img_shape']), section['masks'])
    _ = adapter.classes
    return adapter.to(device)
