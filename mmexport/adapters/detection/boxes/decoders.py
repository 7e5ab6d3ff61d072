"""Choose the decoder of a dense head.

It is chosen by the classes that define the methods which it replaces: a head that overrides one of them is another one.
"""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from torch import Tensor

from ....errors import UnsupportedModelError
from . import head_decoders
from .candidates import Candidates
from .dense import Maps, base_head

Decoder = Callable[[Any, Maps, Tensor], Candidates]
METHODS = ('predict_by_feat', '_predict_by_feat_single', '_bbox_post_process')
_BASE = 'BaseDenseHead'
DECODERS: dict[tuple[str, ...], Decoder] = {
    (_BASE, _BASE, _BASE): base_head,
    (_BASE, 'GFLHead', _BASE): head_decoders.generalized_focal,
    (_BASE, 'FoveaHead', _BASE): head_decoders.fovea,
    (_BASE, 'RepPointsHead', _BASE): head_decoders.reppoints,
    (_BASE, 'TOODHead', _BASE): head_decoders.task_aligned,
    ('YOLOV3Head', _BASE, _BASE): head_decoders.yolov3,
    ('YOLOXHead', _BASE, 'YOLOXHead'): head_decoders.yolox,
}


def decoder_of(head: Any) -> Decoder | None:
    """Return the function that replaces the head's methods; None if they are unknown."""
    return DECODERS.get(owners(head))


def owners(head: Any) -> tuple[str, ...]:
    """Return by which class each of `METHODS` is defined."""
    return tuple(owner_of(head, name) for name in METHODS)


def check_owners(part: Any, methods: Iterable[str], known: Collection[str]) -> None:
    """Raise if a class that is not `known` defines a method of `part`.

    Raises:
        UnsupportedModelError: it does.
    """
    for method in methods:
        if (owner := owner_of(part, method)) not in known:
            raise UnsupportedModelError(f'{type(part).__name__} decides by a {method} of {owner}, which mmexport does not know: '
                                        'use --outputs raw')


def owner_of(part: Any, method: str) -> str:
    """Return the name of the class that defines a method of `part`, or ``none``."""
    return next((cls.__name__ for cls in type(part).__mro__ if method in vars(cls)), 'none')
