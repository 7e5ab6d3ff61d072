"""Create the exported program that several formats start from: ``torch.export`` of a patched adapter with open sizes."""
from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ...adapters import Adapter
from ...errors import Fact, LoweringError, MMExportError, first_line
from ...ops.op import EXPORTED, forms_for, with_forms
from ..base import name_of
from ..examples import generic, input_specs_of, inputs_for, largest_checked
from ..tracer_warnings import tracer_warnings
from .internals.layout_guards import drop_layout_guards, guards_of_the_model
from .internals.open_sizes import exporter
from .internals.unsolved import unsolved_conditions
from .valid_sizes import input_nodes, is_fixed, keep_checks, ranges, refused_corner, sides_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram

# Programs of adapters that still exist: within one run, formats that start from the same program share it.
_MADE: WeakKeyDictionary[Adapter, dict[Any, ExportedProgram]] = WeakKeyDictionary()
_WARNED: WeakKeyDictionary[ExportedProgram, list[dict[str, Any]]] = WeakKeyDictionary()


def unavailable() -> str | None:
    """Return what to install for an exported program with open sizes, or None."""
    if exporter() is not None:
        return None
    return f"torch {torch.__version__} cannot leave the sizes of an exported program open; 2.8 and newer can: pip install 'torch>=2.8'"


def exported_program(adapter: Adapter, example: Tensor, dynamic: Sequence[str], **forms: str) -> ExportedProgram:
    """Return a program of `adapter` in which the `dynamic` axes are open, within `RANGES`.

    ``strict`` is False: Dynamo would have to understand every line of upstream. What cannot be decided about an open size becomes a check
    at run time, so that a size is refused and never computed wrongly.

    Args:
        forms: of the ops that have several, by op; see `mmexport.ops.op`.

    Raises:
        LoweringError: ``torch.export`` cannot follow the model; the cause is chained.
    """
    guard = getattr(adapter, 'guard', None)
    multiple, checked = (guard.multiple_of, guard.ranges) if guard else (1, {})
    example = generic(example, dynamic, multiple)
    programs = _MADE.setdefault(adapter, {})
    key = (tuple(example.shape), tuple(dynamic), str(example.device), tuple(sorted(forms.items())), getattr(adapter, 'raw_too', False),
           repr(checked))
    if key not in programs:
        program = _export(adapter, example, dynamic, forms)
        largest = largest_checked(example, dynamic, checked, multiple) if checked else None
        programs[key] = program if largest is None else _holding_for(checked, program, largest, adapter, dynamic, forms)
    return programs[key]


def _holding_for(checked: Mapping[str, Sequence[int]], program: ExportedProgram, largest: Tensor, adapter: Adapter, dynamic: Sequence[str],
                 forms: dict[str, str]) -> ExportedProgram:
    """Return `program`, or one that takes all checked sizes. The other one is made with another example, where `program` refuses a size."""
    specs = input_specs_of(adapter)
    try:
        if refused_corner(program, largest, dynamic, checked, specs):
            again = _export(adapter, largest, dynamic, forms)
            return program if refused_corner(again, largest, dynamic, checked, specs) else again
    except LoweringError:  # The first program may be enough: its checks say for which sizes.
        pass
    return program


def part_program(part: nn.Module, inputs: tuple[Tensor, ...], moving: Sequence[Sequence[int]], **forms: str) -> ExportedProgram:
    """Return a program of a bare module, for the diagnosis; the axes of `moving` must stay open in it.

    Raises:
        LoweringError: as `exported_program`.
    """
    from torch.export import Dim
    # Every axis may be open, and one that the module's weights fix becomes a constant by itself.
    dims = tuple({axis: Dim.AUTO for axis in range(tensor.dim()) if tensor.shape[axis] > 1} for tensor in inputs)
    program = _exported(part, inputs, (dims,), forms)
    for number, (node, axes) in enumerate(zip(input_nodes(program), moving, strict=True)):
        fixed = [axis for axis in axes if is_fixed(node.meta['val'].shape[axis], program)]
        if fixed:
            raise LoweringError(f'torch.export of {name_of(part)} fixes axis {fixed[0]} of its input {number} to the size of the example: '
                                'some code turns a size into a number', fact=Fact.FIXED_SIZE)
    return program


def _export(adapter: Adapter, example: Tensor, dynamic: Sequence[str], forms: dict[str, str]) -> ExportedProgram:
    from torch.export import Dim
    specs, inputs = input_specs_of(adapter), inputs_for(adapter, example)
    limits = ranges(example, dynamic, specs)
    dims = {spec.name: {index: Dim.AUTO(min=limits[name][0], max=limits[name][1]) for name, index in spec.open_axes(dynamic).items()}
            for spec in specs}
    program = _exported(adapter, inputs, _as_passed(adapter, list(dims.values())), forms)
    _check_open(program, list(limits), adapter)
    return program


def _as_passed(module: nn.Module, dims: list[Any]) -> tuple[Any, ...]:
    """Return the open axes of the inputs as torch.export takes them: those of ``*others`` in a tuple of their own."""
    parameters = inspect.signature(module.forward).parameters.values()
    named = [parameter for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]
    return tuple(dims) if len(dims) <= len(named) else (*dims[:len(named)], tuple(dims[len(named):]))


def _exported(module: nn.Module, inputs: tuple[Tensor, ...], dims: Any, forms: dict[str, str]) -> ExportedProgram:
    try:
        with (torch.no_grad(), silenced(), tracer_warnings() as messages, with_forms(**{**forms_for(EXPORTED), **forms}),
              guards_of_the_model() as recorded_guards, unsolved_conditions()):
            export = exporter()
            assert export is not None, unavailable()
            program = export(module, inputs, dynamic_shapes=dims, strict=False)
    except MMExportError:
        raise
    except Exception as exc:
        raise LoweringError(f'torch.export of {name_of(module)} failed: {type(exc).__name__}: {first_line(exc)}') from exc
    drop_layout_guards(program, recorded_guards)
    keep_checks(program)
    _WARNED[program] = messages
    return program


def warned(program: ExportedProgram) -> list[dict[str, Any]]:
    """Return the warnings about the user's code while `program` was made. Each has file, line and message."""
    return _WARNED.get(program, [])


def _check_open(program: ExportedProgram, dynamic: Sequence[str], adapter: Adapter) -> None:
    """Raise if a dynamic axis became a constant."""
    sides = sides_of(program, input_specs_of(adapter))
    fixed = [name for name in dynamic if any(is_fixed(side, program) for side in sides.get(name, ()))]
    if fixed:
        raise LoweringError(f'torch.export of {type(adapter.model).__name__} fixes {" and ".join(fixed)} to the size of its example: some '
                            'code turns a size into a number. Leave the axis out of export.inputs.dynamic, or patch that code',
                            fact=Fact.FIXED_SIZE)


@contextmanager
def silenced() -> Iterator[None]:
    """Hide warnings and logs of torch.export and the converters, which raise what matters.

    On a branch on data torch.export prints the whole graph to stderr: thousands of lines.
    """
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter('ignore')
            yield
    finally:
        logging.disable(disabled)
