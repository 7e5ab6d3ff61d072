"""Define an int and a float that report the branches they decide."""
from __future__ import annotations

import builtins
import math
import operator
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

from .tables import keys_looked_up

ESCAPED = 'escaped'  # A number was asked for itself: what is decided from it is not seen.
# With the separator: torchvision is not torch.
TORCH = str(Path(torch.__file__).parent) + os.sep
Sink = Callable[[FrameType, str, Any, tuple[Any, ...], bool], None]
_sinks: list[Sink] = []
# The instruction of the last lookup by a size.
_lookups: list[tuple[CodeType, int] | None] = [None]


def note(frame: FrameType, what: str, answer: Any, operands: tuple[Any, ...], picture: bool) -> None:
    """Report to the active recorder, if any, unless torch's own code asks."""
    if _sinks and not frame.f_code.co_filename.startswith(TORCH):
        _sinks[-1](frame, what, answer, operands, picture)


def plain(number: Any) -> Any:
    """Return the exact int or float of a recording one."""
    return int.__pos__(number) if isinstance(number, int) else float.__pos__(number)


def wrap(number: Any, picture: bool = False) -> Any:
    """Return a recording int or float; anything else as it is."""
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return number
    recording_number = RecInt(number) if isinstance(number, int) else RecFloat(number)
    if picture:
        recording_number.picture = True
    return recording_number


def _two(operate: Callable[[Any, Any], Any], swapped: bool) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        one, two = (plain(other), plain(self)) if swapped else (plain(self), plain(other))
        picture = self.picture or getattr(other, 'picture', False)
        result = operate(one, two)
        return tuple(wrap(part, picture) for part in result) if isinstance(result, tuple) else wrap(result, picture)
    return method


def _one(operate: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        return wrap(operate(plain(self), *args), self.picture)
    return method


def _compare(operate: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        operands = plain(self), plain(other)
        answer, frame = operate(*operands), sys._getframe(1)
        # Asked by a lookup, only of the key that is met: the lookup itself is noted.
        if (frame.f_code, frame.f_lasti) != _lookups[-1]:
            note(frame, operate.__name__, answer, operands, self.picture or getattr(other, 'picture', False))
        return answer
    return method


def _truth(self: Any) -> bool:
    number = plain(self)
    note(sys._getframe(1), 'bool', bool(number), (number, 0), self.picture)
    return bool(number)


def _as_float(self: Any) -> float:
    """Convert to float, which `math.sqrt` and the like do."""
    number = plain(self)
    note(sys._getframe(1), ESCAPED, None, (number, 0), self.picture)
    return float(number)


def _hash(self: Any) -> int:
    """Hash, which a lookup in a table by a size does: as many comparisons as the table has keys, if its keys are known."""
    number, frame = plain(self), sys._getframe(1)
    if _sinks:
        _lookups[-1] = frame.f_code, frame.f_lasti
        keys = () if frame.f_code.co_filename.startswith(TORCH) else keys_looked_up(frame)
        for key in keys:
            note(frame, 'eq', number == key, (number, key), self.picture)
        if not keys:
            note(frame, ESCAPED, None, (number, 0), self.picture)
    return hash(number)


_METHODS: dict[str, Any] = {'__bool__': _truth, '__float__': _as_float, '__hash__': _hash, 'picture': False,
                            'real': property(lambda self: self), 'numerator': property(lambda self: self)}
_name: str
_operate: Any
for _name, _operate in dict(add=operator.add, sub=operator.sub, mul=operator.mul, truediv=operator.truediv, mod=operator.mod,
                            pow=operator.pow, floordiv=operator.floordiv, divmod=divmod).items():
    _METHODS[f'__{_name}__'], _METHODS[f'__r{_name}__'] = _two(_operate, False), _two(_operate, True)
for _name, _operate in dict(neg=operator.neg, pos=operator.pos, abs=abs, round=round, ceil=math.ceil, floor=math.floor,
                            trunc=math.trunc).items():
    _METHODS[f'__{_name}__'] = _one(_operate)
for _name in ('lt', 'le', 'gt', 'ge', 'eq', 'ne'):
    _METHODS[f'__{_name}__'] = _compare(getattr(operator, _name))
_BITS: dict[str, Any] = {}
for _name, _operate in {'and': operator.and_, 'or': operator.or_, 'xor': operator.xor, 'lshift': operator.lshift,
                        'rshift': operator.rshift}.items():
    _BITS[f'__{_name}__'], _BITS[f'__r{_name}__'] = _two(_operate, False), _two(_operate, True)
RecInt: Any = type('RecInt', (int,), {**_METHODS, **_BITS, '__reduce__': lambda self: (int, (plain(self),))})
RecFloat: Any = type('RecFloat', (float,), {**_METHODS, '__reduce__': lambda self: (float, (plain(self),))})


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
    """Record the length of a tensor, and of lists in the user's own code, which may be as long as the batch."""
    if isinstance(thing, Tensor):
        # As long as values make it, see the recorder.
        return wrap(builtins.len(thing), getattr(thing, '_counted', None) is not None)
    counted = getattr(thing, 'counts_a_size', False) or (
        isinstance(thing, (list, tuple)) and 'site-packages' not in sys._getframe(1).f_code.co_filename)
    return wrap(builtins.len(thing)) if counted else builtins.len(thing)


SHIMS = {'int': _Int, 'float': _Float, 'range': _range, 'len': _len}


@contextmanager
def recording(sink: Sink) -> Iterator[None]:
    """Report every comparison to `sink`; `int`, `float`, `range` and `len` keep recording outside torch and the standard library.

    What strips an int subclass in C (`int(h)`, `range(h)`, `len(x)`) is a global name in the module that uses it: it is put there for the
    time of the run, and taken away again.
    """
    touched: list[tuple[dict[str, Any], str]] = []
    standard = str(Path(math.__file__ if hasattr(math, '__file__') else operator.__file__).parent), str(Path(operator.__file__).parent)
    _sinks.append(sink)
    try:
        for module in list(sys.modules.values()):
            file = getattr(module, '__file__', None) or ''
            inside = 'site-packages' not in file and file.startswith(standard)
            foreign = file.startswith(TORCH) or '/numpy/' in file or inside or module is sys.modules[__name__] or not file.endswith('.py')
            if not foreign:
                for name, shim in SHIMS.items():
                    if name not in vars(module):
                        vars(module)[name] = shim
                        touched.append((vars(module), name))
        yield
    finally:
        _sinks.remove(sink)
        for where, name in touched:
            del where[name]
