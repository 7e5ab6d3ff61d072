"""Define int and float subclasses that record each comparison made with them. They take the place of sizes and values."""
from __future__ import annotations

import math
import operator
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from .tables import keys_looked_up

ESCAPED = 'escaped'  # A number was read as a plain one: decisions made with it are not recorded.
# With the separator: torchvision is not torch.
TORCH = str(Path(torch.__file__).parent) + os.sep
Sink = Callable[[FrameType, str, Any, tuple[Any, ...], bool], None]
sinks: list[Sink] = []
# The instruction of the last lookup by a size.
_lookups: list[tuple[CodeType, int] | None] = [None]


def note(frame: FrameType, what: str, answer: Any, operands: tuple[Any, ...], picture: bool) -> None:
    """Report to the active recorder, if any, unless torch's own code asks."""
    if sinks and not frame.f_code.co_filename.startswith(TORCH):
        sinks[-1](frame, what, answer, operands, picture)


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
    """Hash a size, which a lookup in a table does; record a comparison with each key, if the keys are known."""
    number, frame = plain(self), sys._getframe(1)
    if sinks:
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
