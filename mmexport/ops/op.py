"""Declare ops that have several forms, and which form each format takes.

A patch calls the op; the format that is being made sets the forms. Outside of `with_forms` every op takes its default form.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from torch import nn

# In `Op.takes`: every format that is made of an exported program.
EXPORTED = 'exported'
_FORMS: ContextVar[Mapping[str, str]] = ContextVar('forms', default={})  # noqa: B039, never changed in place
_OPS: dict[str, Op] = {}


@dataclass(frozen=True)
class Operator:
    """Describe an operator of ours in a graph, and its translations.

    Attributes:
        define: add it to torch, once, and return its overload.
        onnx: for the ``custom_translation_table`` of ``torch.onnx.export``.
        traced_onnx: for ``torch.onnx.register_custom_op_symbolic``.
        openvino: for a ``ConversionExtension`` of OpenVINO's PyTorch frontend.
    """

    name: str
    define: Callable[[], Any]
    onnx: Callable[..., Any]
    traced_onnx: Callable[..., Any]
    openvino: Callable[..., Any]


@dataclass(frozen=True)
class Op:
    """Describe an op that can be written in several ways which compute the same.

    Attributes:
        default: the form that eager and TorchScript take.
        takes: the form by format; `EXPORTED` stands for all that are made of an exported program.
        probed: forms that are tried in this order on the installed runtime of a format in `takes`, by `probe`; the first that is right is
            taken. Some runtimes compute an operator wrongly, or rightly for a batch of one only.
        probe: a module with the op alone, noise (N, 3, 16, 16) -> one tensor with `axes`. One that takes other inputs than the noise has
            `input_specs` and `inputs_of`, as an adapter does.
        classes: names of upstream classes that use the op: a model without them need not be probed for.
        operator: what one of its forms calls, which converters translate.
    """

    name: str
    default: str
    takes: Mapping[str, str] = field(default_factory=dict)
    probed: tuple[str, ...] = ()
    probe: type[nn.Module] | None = None
    axes: tuple[str, ...] = ()
    classes: frozenset[str] = frozenset()
    operator: Operator | None = None

    def occurs_in(self, model: nn.Module) -> bool:
        """Return whether a module of `model` is one of `classes`."""
        return any(cls.__name__ in self.classes for module in model.modules() for cls in type(module).__mro__)


def register(op: Op) -> Op:
    """Add `op` to those whose forms a format sets."""
    _OPS[op.name] = op
    return op


def registered() -> tuple[Op, ...]:
    return tuple(_OPS.values())


def operators() -> tuple[Operator, ...]:
    """Return the operators of ours that may be in a graph."""
    return tuple(op.operator for op in _OPS.values() if op.operator is not None)


def forms_for(backend: str) -> dict[str, str]:
    """Return by op the form that the format `backend` takes. Ops for which it is the default are left out."""
    return {op.name: op.takes[backend] for op in _OPS.values() if backend in op.takes}


def form_of(name: str) -> str:
    """Return the form of an op that is set, or its default."""
    return _FORMS.get().get(name, _OPS[name].default)


@contextmanager
def with_forms(**forms: str) -> Iterator[None]:
    """Set forms by the name of their op inside the block: ``with_forms(deformable_attention='grid')``."""
    token = _FORMS.set({**_FORMS.get(), **forms})
    try:
        yield
    finally:
        _FORMS.reset(token)
