"""The exported program that several formats start from: one ``torch.export`` of a patched adapter, with its sizes left open."""
from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from itertools import product
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..adapters import Adapter
from ..checking.conditions import check_known, refused
from ..errors import LoweringError, MMExportError, first_line
from ..ops.lowerings import preferring
from .base import name_of
from .examples import AXIS, generic, largest_checked
from .layout_guards import drop_layout_guards, questions_of_the_model
from .norm_shapes import norms_by_shape

if TYPE_CHECKING:
    from torch.export import ExportedProgram

# What a program is asked to hold for; the manifest says it. The sides' lower end is what the deepest stride of the listed models needs.
RANGES = {'batch': (1, 64), 'height': (64, 4096), 'width': (64, 4096)}
# Programs of adapters that are alive: within one run, formats that start from the same program share it.
_MADE: WeakKeyDictionary[Adapter, dict[Any, ExportedProgram]] = WeakKeyDictionary()


def unavailable() -> str | None:
    """What to install for an exported program with open sizes, or None; TorchScript needs none of it."""
    from torch import export
    if hasattr(getattr(export, 'Dim', None), 'AUTO'):
        return None
    return f'torch {torch.__version__} cannot leave the sizes of an exported program open: pip install -U torch'


def exported_program(adapter: Adapter, example: Tensor, dynamic: Sequence[str], **forms: str) -> ExportedProgram:
    """A program of `adapter` in which the `dynamic` axes are open, within `RANGES`.

    ``strict`` is False: Dynamo would have to understand every line of upstream. What cannot be decided about an open size becomes a check
    at run time, so that a size is refused and never computed wrongly.

    Args:
        forms: what to prefer of the ops that have several, see `mmexport.ops.lowerings`.

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
        other = largest_checked(example, dynamic, checked, multiple) if checked else None
        programs[key] = program if other is None else _holding_for(checked, program, other, adapter, dynamic, forms)
    return programs[key]


def _holding_for(checked: Mapping[str, Sequence[int]], program: ExportedProgram, other: Tensor, adapter: Adapter, dynamic: Sequence[str],
                 forms: dict[str, str]) -> ExportedProgram:
    """Return `program`; where it refuses a corner of the `checked` ranges, one that is made with `other` and refuses none."""
    try:
        if refused_corner(program, other, dynamic, checked):
            again = _export(adapter, other, dynamic, forms)
            return program if refused_corner(again, other, dynamic, checked) else again
    except LoweringError:  # The first program may do all the same: its checks say for which sizes.
        pass
    return program


def refused_corner(program: ExportedProgram, example: Tensor, dynamic: Sequence[str], checked: Mapping[str, Sequence[int]],
                   ) -> dict[str, int] | None:
    """Return a corner of the `checked` ranges (by open axis) that `program` does not hold for; None where there is none."""
    limits, conditions = held(program, example, dynamic), conditions_of(program)
    fixed = {name: (int(example.shape[axis]),) for name, axis in AXIS.items()}
    for corner in product(*(checked.get(name, only) if name in dynamic else only for name, only in fixed.items())):
        sizes = dict(zip(AXIS, corner, strict=True))
        try:
            if any(not low <= sizes[name] <= high for name, (low, high) in limits.items()) or refused(conditions, sizes):
                return sizes
        except (ArithmeticError, ValueError):  # A condition that divides by a size is not met where that is zero.
            return sizes
    return None


def part_program(part: nn.Module, inputs: tuple[Tensor, ...], moving: Sequence[Sequence[int]], **forms: str) -> ExportedProgram:
    """A program of a bare module, for the diagnosis; the axes of `moving` must stay open in it.

    Raises:
        LoweringError: as `exported_program`.
    """
    from torch.export import Dim
    # Every axis may be open, and one that the module's weights fix becomes a constant by itself.
    dims = tuple({axis: Dim.AUTO for axis in range(tensor.dim()) if tensor.shape[axis] > 1} for tensor in inputs)
    program = _exported(part, inputs, (dims,), forms)
    images = [node for node in program.graph.nodes if node.op == 'placeholder' and node.name in program.graph_signature.user_inputs]
    for number, (node, axes) in enumerate(zip(images, moving, strict=True)):
        fixed = [axis for axis in axes if _is_fixed(node.meta['val'].shape[axis], program)]
        if fixed:
            raise LoweringError(f'torch.export of {name_of(part)} fixes axis {fixed[0]} of its input {number} to the size of the example: '
                                'some code turns a size into a number')
    return program


def _export(adapter: Adapter, example: Tensor, dynamic: Sequence[str], forms: dict[str, str]) -> ExportedProgram:
    from torch.export import Dim
    dims = {AXIS[name]: Dim.AUTO(min=low, max=high) for name, (low, high) in ranges(example, dynamic).items()}
    program = _exported(adapter, (example,), (dims,), forms)
    _check_open(program, dynamic, adapter)
    return program


def _exported(module: nn.Module, inputs: tuple[Tensor, ...], dims: Any, forms: dict[str, str]) -> ExportedProgram:
    try:
        with (torch.no_grad(), silenced(), preferring(adaptive_pooling='matrix', **forms), norms_by_shape(),
              questions_of_the_model() as asked):
            program = torch.export.export(module, inputs, dynamic_shapes=dims, strict=False,
                                          prefer_deferred_runtime_asserts_over_guards=True)
    except MMExportError:
        raise
    except Exception as exc:
        raise LoweringError(f'torch.export of {name_of(module)} failed: {type(exc).__name__}: {first_line(exc)}') from exc
    drop_layout_guards(program, asked)
    return program


def _check_open(program: ExportedProgram, dynamic: Sequence[str], adapter: Adapter) -> None:
    """An axis that became a constant on the way must not be found out by the first user with another size."""
    image = next(node for node in program.graph.nodes if node.op == 'placeholder' and node.name == 'image')
    fixed = [name for name in dynamic if _is_fixed(image.meta['val'].shape[AXIS[name]], program)]
    if fixed:
        raise LoweringError(f'torch.export of {type(adapter.model).__name__} fixes {" and ".join(fixed)} to the size of its example: some '
                            'code turns a size into a number. Leave the axis out of export.inputs.dynamic, or patch that code')


def _is_fixed(side: Any, program: ExportedProgram) -> bool:
    if not isinstance(side, torch.SymInt):
        return True
    allowed = program.range_constraints.get(side.node.expr)
    return allowed is not None and bool(allowed.lower == allowed.upper)


def held(program: ExportedProgram, example: Tensor, dynamic: Sequence[str]) -> dict[str, tuple[int, int]]:
    """The open axes and the sizes that `program` itself says it holds for: what the model's code decided may have narrowed `ranges`."""
    image = next(node for node in program.graph.nodes if node.op == 'placeholder' and node.name == 'image')
    found = ranges(example, dynamic)
    for name, (low, high) in found.items():
        allowed = program.range_constraints.get(image.meta['val'].shape[AXIS[name]].node.expr)
        if allowed is not None:
            # torch.export notes 2 for every open axis, also where 1 is taken; that is checked with the file.
            found[name] = max(low, int(allowed.lower)) if allowed.lower > 2 else low, min(high, int(allowed.upper))
    return found


def conditions_of(program: ExportedProgram) -> list[str]:
    """Return the checks on sizes in `program` as text over the names of the axes, for formats and runners that would lose them.

    torch leaves one out of the graph that its operators cannot express (``math.ceil(h / 2) > 100``); it is among these.

    Raises:
        LoweringError: a check is none that a runner could evaluate.
    """
    import sympy
    image = next(node for node in program.graph.nodes if node.op == 'placeholder' and node.name == 'image')
    names = {side.node.expr: sympy.Symbol(name, integer=True) for name, axis in AXIS.items()
             if isinstance(side := image.meta['val'].shape[axis], torch.SymInt) and side.node.expr.is_Symbol}
    env = image.meta['val'].fake_mode.shape_env
    expressions = {check.expr for pending in env.deferred_runtime_asserts.values() for check in pending} if env else set()
    # One on a size that depends on data is an affair of the graph.
    found = sorted(str(expression.xreplace(names)) for expression in expressions if expression.free_symbols <= names.keys())
    try:
        check_known(found, dict(zip(AXIS, (2, 480, 544), strict=True)))
    except ValueError as exc:
        raise LoweringError(f'the model branches on its sizes by a function that a manifest cannot hold: {exc}') from exc
    return found


def narrowed(spec: dict[str, Any], held: dict[str, tuple[int, int]], conditions: list[str]) -> dict[str, Any]:
    """The manifest's description of an input, where the program holds for fewer sizes than were tried."""
    limits = {name: [max(low, held[name][0]), min(high, held[name][1])] if name in held else [low, high]
              for name, (low, high) in spec.get('ranges', {}).items()}
    return {**spec, 'ranges': limits, 'conditions': conditions}


def ranges(example: Tensor, dynamic: Sequence[str]) -> dict[str, tuple[int, int]]:
    """The open axes and the sizes that they are open for, the example's own always among them."""
    found = {}
    for name in dynamic:
        low, high = RANGES[name]
        side = int(example.shape[AXIS[name]])
        found[name] = min(low, side), max(high, side)
    return found


@contextmanager
def silenced() -> Iterator[None]:
    """torch.export and the exporters after it speak of their own affairs; what matters they raise.

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
