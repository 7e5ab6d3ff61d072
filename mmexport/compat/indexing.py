"""Let a TorchFunctionMode see `tensor[index]`, where torch itself does not show it one.

Tried on torch 2.1.2, which shows a mode only those whose index is a tuple or a list, and on 2.4.1, 2.6.0, 2.8.0,
2.13.0 and 2.14.1, which show all.

A function set as ``Tensor.__getitem__`` also fills the type's ``sq_item``, and CPython does not clear it when the
function is removed (``resolve_slotdups`` in Objects/typeobject.c). torch then takes a tensor without axes for a
sequence: ``torch.tensor([torch.tensor(0)])`` ends with ``len() of a 0-d tensor``, as does mmdet's ``mask2bbox``. So
the slot is put back by its address, at once and again at the end.
"""
from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, handle_torch_function

# Places in PyTypeObject and PySequenceMethods, counted in pointers: the same in CPython 3.8 to 3.13.
TP_AS_SEQUENCE, SQ_ITEM = 13, 3


@contextmanager
def indexing_shown() -> Iterator[None]:
    """Replace ``Tensor.__getitem__`` inside the block by one that modes see. Nothing is replaced if they see torch's own."""
    if _is_shown() or not _slots_are_found():
        yield
        return
    original: Any = Tensor.__getitem__
    slots = {type_: _sq_item(type_).value for type_ in _types(Tensor)}

    def indexed(tensor: Tensor, index: Any) -> Any:
        if torch._C._is_torch_function_mode_enabled():
            return handle_torch_function(original, (tensor,), tensor, index)
        return original(tensor, index)

    _set(indexed, slots)
    try:
        yield
    finally:
        _set(original, slots)


def _set(function: Any, slots: dict[type, int | None]) -> None:
    """Set ``Tensor.__getitem__``, and put ``sq_item`` of the tensor types back; a type made since has Tensor's."""
    Tensor.__getitem__ = function  # type: ignore[method-assign]
    for type_ in _types(Tensor):
        if type_ in slots or type_.__getitem__ is function:
            _sq_item(type_).value = slots.get(type_, slots[Tensor])


def _types(type_: Any) -> list[Any]:
    """Return a type and its subclasses."""
    return [type_, *(subtype for below in type.__subclasses__(type_) for subtype in _types(below))]


def _sq_item(type_: type) -> ctypes.c_void_p:
    """Return the slot of a type that ``PySequence_Check`` reads; an empty one, if the type has no sequence methods."""
    word = ctypes.sizeof(ctypes.c_void_p)
    methods = ctypes.c_void_p.from_address(id(type_) + TP_AS_SEQUENCE * word).value
    return ctypes.c_void_p() if methods is None else ctypes.c_void_p.from_address(methods + SQ_ITEM * word)


@lru_cache(maxsize=1)
def _slots_are_found() -> bool:
    """Return whether the slot is where this Python has it: lists and tuples fill it, dicts, sets and tensors do not."""
    return (all(_sq_item(type_).value for type_ in (list, tuple, str))
            and not any(_sq_item(type_).value for type_ in (dict, set, Tensor)))


@lru_cache(maxsize=1)
def _is_shown() -> bool:
    dispatched: list[Any] = []

    class Probe(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            dispatched.append(func)
            return func(*args, **(kwargs or {}))

    tensor = torch.zeros(2)
    with Probe():
        tensor[0]
    return bool(dispatched)
