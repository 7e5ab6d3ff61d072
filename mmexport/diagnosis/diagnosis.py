"""Hold a diagnosis: the smallest failing part, what fails there, and the remedy."""
from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ..errors import Fact
from .calls import Call
from .remedies import remedy_for

Say = Callable[[str], None]


@dataclass(frozen=True)
class Diagnosis:
    """Hold one failure and its location.

    Attributes:
        stage: ``patched``, ``traced``/``exported`` or ``file``: the step after which it is wrong; ``lowering`` where there is no file.
        module: path of the smallest failing module with the number of the call; empty for code that is in no module's forward, and
            `cls` is then the adapter.
        path: the path without the number.
        file, line, source: the line of the model's or upstream's code, as far as it is known; else where the class is.
        op: the operator, in the exporter's words.
        message: the exporter's own, or the size of the error, in one line.
        cause, remedy: from `mmexport.diagnosis.remedies`, None where nothing is known.
        repro: the file in the work dir that shows it alone, and the error that it ends with if that is another one.
    """

    backend: str
    stage: str
    module: str
    cls: str
    file: str | None
    line: int | None
    source: str | None
    op: str | None
    message: str
    cause: str | None
    remedy: str | None
    tried: int = 0
    repro: str | None = None
    path: str = ''

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> Iterator[str]:
        place = f'{self.module} ({self.cls})' if self.module else self.cls
        yield f'diagnosis of {self.backend}: {self.stage}: {place}'
        if self.file:
            yield f'  at {_short(self.file)}:{self.line}' + (f'  {self.source}' if self.source else '')
        if self.op:
            yield f'  operator {self.op}'
        yield f'  {self.message}'
        if self.cause:
            yield f'  cause: {self.cause}'
        if self.remedy:
            yield f'  remedy: {self.remedy}'
        if self.repro:
            yield f'  repro: {self.repro}'


def make_diagnosis(backend: str, stage: str, call: Call | None, module: nn.Module, message: str, place: tuple[str, int] | None = None,
            op: str | None = None, tried: int = 0, fact: Fact | None = None) -> Diagnosis:
    """Create a diagnosis with class, source line, cause and remedy."""
    known = place is not None
    file, line = place or _class_place(module)
    source = linecache.getline(file, line).strip() if file and line and known else None
    cause, remedy = remedy_for(message, source or '', stage, fact)
    return Diagnosis(backend, stage, str(call) if call else '', type(module).__name__, file, line, source, op, message, cause, remedy,
                     tried, path=call.path if call else '')


def class_lines(module: nn.Module) -> tuple[str, range] | None:
    """Return the file and the lines of the class of `module`; None if it is in no file."""
    try:
        lines, start = inspect.getsourcelines(type(module))
        return str(inspect.getsourcefile(type(module))), range(start, start + len(lines))
    except (OSError, TypeError):
        return None


def _class_place(module: nn.Module) -> tuple[str | None, int | None]:
    lines = class_lines(module)
    return (lines[0], lines[1].start) if lines else (None, None)


def _short(file: str) -> str:
    parts = Path(file).parts
    return '/'.join(parts[parts.index('site-packages') + 1:]) if 'site-packages' in parts else file
