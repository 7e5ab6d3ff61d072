"""Replace int, float, range and len, so that they keep a size's record."""
from __future__ import annotations

import builtins
import math
import operator
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor

from . import numbers
from .numbers import TORCH, RecFloat, RecInt, Sink, note, plain, sinks, wrap


def _scalar(number: Any) -> Any:
    """Return what `.item()` gives, recording; a tensor goes through the function mode."""
    return number.item() if isinstance(number, Tensor) else number


class _Like(type):
    """Replace int or float, also in isinstance()."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.__mro__[1])

    def __subclasscheck__(cls, subclass: Any) -> bool:
        return issubclass(subclass, cls.__mro__[1])


class _Int(int, metaclass=_Like):
    def __new__(cls, number: Any = 0, *args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]
        number = _scalar(number)
        if not isinstance(number, (RecInt, RecFloat)):
            return int(number, *args, **kwargs)
        whole = int(plain(number))
        if number.picture:
            note(sys._getframe(1), 'int', whole, (whole, 0), True)
        return wrap(whole, number.picture)


class _Float(float, metaclass=_Like):
    def __new__(cls, number: Any = 0.0) -> Any:  # type: ignore[misc]
        number = _scalar(number)
        if not isinstance(number, (RecInt, RecFloat)):
            return float(number)
        return wrap(float(plain(number)), number.picture)


def _range(*args: Any) -> Any:
    """Record the number of iterations: a tracer unrolls a loop."""
    bounds = [_scalar(arg) for arg in args]
    if any(isinstance(bound, RecInt) for bound in bounds):
        exact = [plain(bound) for bound in bounds]
        turns = len(builtins.range(*exact))
        note(sys._getframe(1), 'turns', turns, (turns, 0), any(getattr(bound, 'picture', False) for bound in bounds))
        return builtins.range(*exact)
    return builtins.range(*bounds)


def _len(thing: Any) -> Any:
    """Record the length of a tensor, and of lists in the user's own code. Such a list may be as long as the batch."""
    if isinstance(thing, Tensor):
        # As long as values make it, see the recorder.
        return wrap(builtins.len(thing), getattr(thing, '_counted', None) is not None)
    counted = getattr(thing, 'counts_a_size', False) or (
        isinstance(thing, (list, tuple)) and 'site-packages' not in sys._getframe(1).f_code.co_filename)
    return wrap(builtins.len(thing)) if counted else builtins.len(thing)


STANDARD = str(Path(math.__file__ if hasattr(math, '__file__') else operator.__file__).parent), str(Path(operator.__file__).parent)
OWN = numbers.__file__, __file__


@cache
def _records(file: str) -> bool:
    """Return whether the code of a module's file gets the replacements."""
    inside = 'site-packages' not in file and file.startswith(STANDARD)
    return file.endswith('.py') and not (file.startswith(TORCH) or '/numpy/' in file or inside or file in OWN)


class _Namespaces:
    """Keep the global names of each module that gets the replacements, until another one is imported."""

    def __init__(self) -> None:
        self.modules: list[Any] = []
        self.names: list[dict[str, Any]] = []

    def of_modules(self) -> list[dict[str, Any]]:
        modules = list(sys.modules.values())
        if modules != self.modules:
            self.modules = modules
            self.names = [vars(module) for module in modules if _records(getattr(module, '__file__', None) or '')]
        return self.names


_namespaces = _Namespaces()
SHIMS = {'int': _Int, 'float': _Float, 'range': _range, 'len': _len}


@contextmanager
def recording(sink: Sink) -> Iterator[None]:
    """Report every comparison to `sink`; `int`, `float`, `range` and `len` keep recording outside torch and the standard library.

    What strips an int subclass in C (`int(h)`, `range(h)`, `len(x)`) is a global name in the module that uses it: it is put there for the
    time of the run, and taken away again.
    """
    touched: list[tuple[dict[str, Any], str]] = []
    sinks.append(sink)
    try:
        for names in _namespaces.of_modules():
            for name, shim in SHIMS.items():
                if name not in names:
                    names[name] = shim
                    touched.append((names, name))
        yield
    finally:
        sinks.remove(sink)
        for where, name in touched:
            del where[name]
