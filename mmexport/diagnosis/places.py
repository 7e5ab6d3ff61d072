"""Find the line of the model's code that an exporter's error is about."""
from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

import torch

from ..errors import causes

_HERE = str(Path(__file__).resolve().parents[1])
_LIBRARIES = (str(Path(torch.__file__).parent), str(Path(sysconfig.get_paths()['stdlib'])))
_FOREIGN = ('/onnx', '/openvino', '/sympy/', '/importlib', '<')
_LINE = re.compile(r'File "([^"]+)", line (\d+)')
_OPERATORS = (r"OpOverload\(op='([^']+)'", r'target=torch\.ops\.([\w.]+)', r'\b(aten::\w+)', r'\b(aten\.\w+\.\w+)',
              r'found for operations: (.+)', r'Python function call \^?(\w+)')


def place_of(exc: BaseException) -> tuple[str, int] | None:
    """Return the innermost line of the model in the tracebacks of `exc` and its causes. Without one, the message is searched."""
    place = None
    for error in causes(exc):
        stack = getattr(error, 'stack', None)
        if stack:
            place = _last([(file, int(line)) for file, line in _LINE.findall(stack)]) or place
        place = _last(_frames(error.__traceback__)) or place
    return place


def operator_of(exc: BaseException) -> str | None:
    for error in causes(exc):
        for pattern in _OPERATORS:
            if match := re.search(pattern, str(error)):
                return match[1].strip().rstrip('.')[:120]
    return None


def of_the_model(file: str) -> bool:
    """Return whether `file` belongs to the model's author or its upstream."""
    if any(word in file for word in _FOREIGN):
        return False
    if file.startswith(_HERE):
        return file.startswith(f'{_HERE}/patches')
    inside = 'site-packages' in file or not file.startswith(_LIBRARIES)
    return inside and not file.startswith(_LIBRARIES[0])


def _frames(trace: TracebackType | None) -> list[tuple[str, int]]:
    return [(frame.filename, int(frame.lineno or 0)) for frame in traceback.extract_tb(trace)]


def _last(places: list[tuple[str, int]]) -> tuple[str, int] | None:
    model_places = [place for place in places if of_the_model(place[0])]
    return model_places[-1] if model_places else None
