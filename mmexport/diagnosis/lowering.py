"""Find the smallest module that cannot be lowered."""
from __future__ import annotations

import torch
from torch import Tensor

from ..adapters import Adapter
from ..backends import Backend
from ..errors import Fact, LoweringError, first_line
from .calls import Call, list_calls, record
from .diagnosis import Diagnosis, Say, make_diagnosis
from .parts import Part
from .places import operator_of, place_of


def why_not_lowered(backend: Backend, adapter: Adapter, image: Tensor, other: Tensor, error: LoweringError,
                    say: Say = lambda line: None, refused: bool = False) -> tuple[Diagnosis, Part | None]:
    """Descend from the adapter to the first called module that fails on its own, repeatedly.

    Backbone comes before neck, head and decoder layers because that is how they are called. Call it while the patches are on.

    Args:
        image: what was lowered with; `other` has another size and batch, and tells which axes must stay open.
        error: the failure of the whole.
        refused: it can be lowered, and then does not take `other`; look for the part that does not take its share of it.
    """
    calls = list_calls(adapter.model, lambda: adapter.run_on(image))
    at: Call | None = None
    smallest: Part | None = None
    tried = 0
    while True:
        children = [call for call in calls if call.inside == at]
        first = record(adapter.model, lambda: adapter.run_on(image), children)
        second = record(adapter.model, lambda: adapter.run_on(other), children)
        for call in children:
            if call not in second or not first[call].outputs:
                continue
            part = Part(adapter.model.get_submodule(call.path), first[call], second[call])
            if not part.inputs:
                continue
            say(f'trying {call} ({type(part.model).__name__})')
            tried += 1
            failure = _failure(backend, part, part.others if refused and any(part.moving) else None)
            if failure:
                at, smallest, error = call, part, failure
                break
        else:
            module = adapter if at is None else adapter.model.get_submodule(at.path)
            stage = 'refused' if refused else 'lowering'
            return make_diagnosis(backend.name, stage, at, module, str(error), place_of(error), operator_of(error), tried,
                           error.fact), smallest


def _failure(backend: Backend, part: Part, again: tuple[Tensor, ...] | None) -> LoweringError | None:
    """Return the error of lowering `part`, or of its intermediate form on another input."""
    try:
        run = backend.attempt(part, part.inputs, part.moving)
    except LoweringError as exc:
        return exc
    if again is None:
        return None
    try:
        with torch.no_grad():
            run(*again)
    except (RuntimeError, ValueError, AssertionError) as exc:
        return LoweringError(f'some code turns a size into a number: lowered with {_shapes(part.inputs)}, it does not take '
                             f'{_shapes(again)}: {first_line(exc)}', fact=Fact.FIXED_SIZE)
    return None


def _shapes(tensors: tuple[Tensor, ...]) -> str:
    return ' and '.join('x'.join(map(str, tensor.shape)) for tensor in tensors)
