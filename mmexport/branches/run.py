"""Hold what a model decided on one input: each condition on a size or a value, by its place in the source and the calls that lead there."""
from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from .numbers import ESCAPED, TORCH
from .places import inside_try, place_of
from .positions import position_at

OURS = str(Path(__file__).parents[1]) + os.sep


@dataclass(frozen=True)
class Site:
    """Describe a condition in the source."""

    file: str
    line: int
    column: int
    # The condition as it is written, and the source around it.
    text: str
    around: str
    kind: str  # 'size' or 'value'

    @property
    def place(self) -> str:
        """Return FILE:LINE, the file with its last folders."""
        return f'{"/".join(Path(self.file).parts[-3:])}:{self.line}'

    @property
    def in_user_code(self) -> bool:
        """Return whether it is the user's code, not that of an installed package."""
        return 'site-packages' not in self.file

    @property
    def code(self) -> str:
        """Return the condition, and its line if that has more."""
        return self.text if self.around == self.text else f'{self.text}   in: {self.around}'

    def as_dict(self) -> dict[str, Any]:
        return dict(place=self.place, column=self.column, code=self.code, kind=self.kind)


Key = tuple[Site, int, int]  # Where it is, by which calls of which modules it was reached, and the number of earlier evaluations.
Answer = tuple[Any, tuple[Any, ...]]  # The answer, and the operands.


def _called_by(frame: FrameType | None) -> int:
    """Hash the calls that lead here, by their places in the source; so that modules in a loop differ.

    The instruction would not do: of one call it differs before and after CPython has specialised it, and under a profiler.
    """
    callers: list[Any] = []
    # Frames of mmexport end the chain: an adapter runs the model in more than one way.
    while frame is not None and not frame.f_code.co_filename.startswith(OURS):
        name = frame.f_code.co_filename
        if frame.f_code.co_name == '_call_impl' and name.startswith(TORCH):
            callers.append(id(frame.f_locals['self']))
        elif not name.startswith(TORCH):
            callers.append((frame.f_code, position_at(frame.f_code, frame.f_lasti)))
        frame = frame.f_back
    return hash(tuple(callers))


def _may_be_caught(frame: FrameType | None) -> bool:
    """Return whether a caller of the model's own code is in a ``try`` with handlers. Callers up to mmexport's count."""
    while frame is not None and not frame.f_code.co_filename.startswith(OURS):
        if not frame.f_code.co_filename.startswith(TORCH) and inside_try(frame.f_code, frame.f_lasti):
            return True
        frame = frame.f_back
    return False


@dataclass
class Run:
    """Hold the decisions on one input.

    Attributes:
        answers: what value branches shall answer where there are no values.
        conditions: answers and operands of those that were asked.
        escaped: where a size or a value went to code that is not followed, with the numbers that went there.
    """

    answers: dict[Key, Answer] = field(default_factory=dict)
    conditions: dict[Key, Answer] = field(default_factory=dict)
    count: dict[tuple[Site, int], int] = field(default_factory=dict)
    escaped: dict[Site, set[Any]] = field(default_factory=dict)
    error: str = ''

    def __call__(self, frame: FrameType, what: str, answer: Any, operands: tuple[Any, ...], picture: bool) -> None:
        key = self.key(frame, picture)
        if key is not None and what == ESCAPED:
            self.escaped.setdefault(key[0], set()).add(operands[0])
        elif key is not None:
            self.conditions[key] = answer, operands

    def key(self, frame: FrameType, picture: bool, count: bool = True) -> Key | None:
        """Return the key of the condition that `frame` is at; None for one that cannot go wrong silently.

        Args:
            count: False to ask for the key that the next question there will have.
        """
        if frame.f_code.co_filename.startswith(OURS):
            return None
        place = place_of(frame.f_code, frame.f_lasti)
        if place is None and _may_be_caught(frame.f_back):
            place = place_of(frame.f_code, frame.f_lasti, caught=True)
        if place is None:
            return None
        site = Site(frame.f_code.co_filename, *place, 'value' if picture else 'size')
        calls = _called_by(frame)
        nth = self.count.get((site, calls), -1) + 1
        if count:
            self.count[site, calls] = nth
        return site, calls, nth
