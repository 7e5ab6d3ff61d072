"""Check the values of the ``export`` section. Its keys are checked in `mmexport.model.config`."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..errors import ConfigError

AXES = ('batch', 'height', 'width')


def check_values(section: Mapping[str, Any]) -> None:
    """Raise for the first value that is none of those expected; the message has that key alone.

    Raises:
        ConfigError: a number, a size or a list of them is something else.
    """
    for key, value, expected, fits in _rules(section['inputs'], section['verify']):
        try:
            right = fits(value)
        except (TypeError, ValueError):
            right = False
        if not right:
            raise ConfigError(f'export.{key} is {value!r}; expected {expected}')


def _rules(inputs: Mapping[str, Any], verify: Mapping[str, Any]) -> Iterator[tuple[str, Any, str, Callable[[Any], bool]]]:
    """Yield key, value, what is expected in words, and the test of it."""
    yield ('inputs.shape', inputs['shape'], '(H, W) or (N, C, H, W), whole numbers of at least 1',
           lambda value: value is None or _sides(value, 2, 4))
    yield 'inputs.batch', inputs['batch'], 'a whole number of at least 1', lambda value: value is None or int(value) >= 1
    yield ('inputs.dynamic', inputs['dynamic'], f'some of {", ".join(map(repr, AXES))} in a list',
           lambda value: not set(value or ()) - {*AXES})
    for name in ('normalize', 'img_shape'):
        yield f'inputs.{name}', inputs[name], 'True or False', lambda value: isinstance(value, bool)
    yield ('verify.shapes', verify['shapes'], 'a list of (H, W), as [(256, 320)]',
           lambda value: value is None or not isinstance(value, str) and all(_sides(size, 2, 4) for size in value))
    yield 'verify.batch', verify['batch'], 'a whole number of at least 1', lambda value: value is None or int(value) >= 1
    yield 'verify.noises', verify['noises'], 'a whole number of at least 0', lambda value: int(value) >= 0
    yield 'verify.tolerance.scale', verify['tolerance']['scale'], 'a number between 0 and 1', lambda value: 0 < float(value) < 1


def _sides(value: Any, *lengths: int) -> bool:
    return not isinstance(value, str) and len(value) in lengths and all(int(side) >= 1 for side in value)
