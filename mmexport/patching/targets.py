"""Replace a function by its dotted name wherever it is bound, and restore it."""
from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections import Counter
from contextlib import ExitStack
from itertools import repeat
from operator import is_
from types import FunctionType, ModuleType
from typing import Any

from ..errors import PatchError
from .patch import Patch

ABSENT = object()


def in_use(target: str) -> bool:
    """Return whether the target's module has been imported: a built model cannot run what it has not imported.

    A name that an imported module does not have, and that is no module either, counts as in use: it is an error for `_locate`.
    """
    parts = target.split('.')
    cut = max((cut for cut in range(1, len(parts)) if '.'.join(parts[:cut]) in sys.modules), default=0)
    if cut == 0:
        return False
    parent, name = '.'.join(parts[:cut]), parts[cut]
    if hasattr(sys.modules[parent], name) or not hasattr(sys.modules[parent], '__path__'):
        return True
    return importlib.util.find_spec(f'{parent}.{name}') is None


def _counted(function: Any, calls: Counter[str], target: str) -> Any:
    """Wrap `function` to count its calls; anything but a plain function is returned as it is, and counts as called."""
    if not isinstance(function, FunctionType):
        calls[target] += 1
        return function

    @functools.wraps(function)
    def counting(*args: Any, **kwargs: Any) -> Any:
        calls[target] += 1
        return function(*args, **kwargs)

    return counting


def replace_target(target: str, patch: Patch, undo: ExitStack, calls: Counter[str]) -> None:
    owner, name = _locate(target)
    # From the class's own dict, so that a staticmethod is put back as one and an inherited method stays inherited.
    original = vars(owner).get(name, ABSENT)
    current = getattr(owner, name)
    new: Any = _counted(patch.replacement(target, original.__func__ if isinstance(original, classmethod) else current), calls, target)
    if isinstance(original, (staticmethod, classmethod)):
        new = type(original)(new)
    _set(owner, name, original, new, undo)
    if isinstance(owner, ModuleType):
        undo.callback(_restore_late_copies, new, current, owner)
        for module, binding in _copies(current, owner):
            _set(module, binding, current, new, undo)


def _restore_late_copies(new: Any, original: Any, home: ModuleType) -> None:
    """Restore bindings of the replacement in modules that were imported while the patch was applied."""
    for module, binding in _copies(new, home):
        if module.__name__ != getattr(new, '__module__', None):
            setattr(module, binding, original)


def _set(owner: Any, name: str, original: Any, new: Any, undo: ExitStack) -> None:
    if original is ABSENT:
        undo.callback(delattr, owner, name)
    else:
        undo.callback(setattr, owner, name, original)
    setattr(owner, name, new)


def _locate(target: str) -> tuple[Any, str]:
    """Split ``package.module.Class.method`` into its owner and the last name, importing what has to be."""
    parts = target.split('.')
    for cut in range(len(parts) - 1, 0, -1):
        try:
            owner: Any = importlib.import_module('.'.join(parts[:cut]))
        except ModuleNotFoundError as exc:
            if exc.name and not target.startswith(exc.name):
                raise PatchError(f'{target}: importing it needs {exc.name}, which is not installed') from exc
            continue
        try:
            for part in parts[cut:-1]:
                owner = getattr(owner, part)
            getattr(owner, parts[-1])
        except AttributeError as exc:
            raise PatchError(f'{target} does not exist in {_installed(parts[0])}: {exc}. The patch was written for another version; '
                             'leave it out with export.patches, or report it') from exc
        return owner, parts[-1]
    raise PatchError(f'{target} does not exist in {_installed(parts[0])}; leave the patch out with export.patches')


def installed_at_all(package: str) -> bool:
    return package in sys.modules or importlib.util.find_spec(package) is not None


def _installed(package: str) -> str:
    version = getattr(sys.modules.get(package), '__version__', None)
    return f'{package} {version}' if version else package


def _copies(original: Any, home: ModuleType) -> list[tuple[ModuleType, str]]:
    """Return the other modules that hold the same object, by ``from x import y``."""
    copies = []
    for module in list(sys.modules.values()):
        if not isinstance(module, ModuleType) or module is home:
            continue
        # Half a million names: asked in C first.
        if not any(map(is_, list(vars(module).values()), repeat(original))):
            continue
        for name, value in list(vars(module).items()):
            if value is original:
                copies.append((module, name))
    return copies
