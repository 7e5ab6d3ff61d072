"""Find out for which sizes an exported program holds, by its ranges and its checks."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ...adapters.specs import FOLLOWING, IMAGE, InputSpec
from ...checker.conditions import check_known, refused
from ...errors import LoweringError
from ..examples import AXIS
from .internals.layout_guards import sizes_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram

# The sizes that a program is exported for, as in the manifest. The smallest side follows from the deepest stride of the listed models.
RANGES = {'batch': (1, 64), 'height': (64, 4096), 'width': (64, 4096)}

# The checks on sizes of programs as they were made: a converter that decomposes a program adds checks of its own to the same record.
_CHECKS: WeakKeyDictionary[ExportedProgram, set[Any]] = WeakKeyDictionary()


def keep_checks(program: ExportedProgram) -> None:
    """Remember the checks on sizes that `program` has now, as those that `conditions_of` returns."""
    _CHECKS[program] = _checks(program)


def _checks(program: ExportedProgram) -> set[Any]:
    env = sizes_of(program)
    return {check.expr for pending in env.deferred_runtime_asserts.values() for check in pending} if env else set()


def ranges(example: Tensor, dynamic: Sequence[str], specs: Sequence[InputSpec] = (IMAGE,)) -> dict[str, tuple[int, int]]:
    """Return the open axes with their sizes. The sizes of the example are always among them."""
    limits = {name: sizes for spec in specs for name, sizes in spec.ranges.items()}
    for name in dynamic:
        low, high = RANGES[name]
        side = int(example.shape[AXIS[name]])
        limits[name] = min(low, side), max(high, side)
    return limits


def input_nodes(program: ExportedProgram) -> list[Any]:
    """Return the nodes of the inputs, in order."""
    names = program.graph_signature.user_inputs
    by_name = {node.name: node for node in program.graph.nodes if node.op == 'placeholder'}
    return [by_name[str(name)] for name in names if str(name) in by_name]


def sides_of(program: ExportedProgram, specs: Sequence[InputSpec]) -> dict[str, list[Any]]:
    """Return the sizes of each axis that can be open, by its name. They are numbers or symbols, over all inputs."""
    sides: dict[str, list[Any]] = {}
    for spec, node in zip(specs, input_nodes(program), strict=True):
        for name, index in spec.open_axes(FOLLOWING).items():
            sides.setdefault(name, []).append(node.meta['val'].shape[index])
    return sides


def valid_ranges(program: ExportedProgram, example: Tensor, dynamic: Sequence[str],
         specs: Sequence[InputSpec] = (IMAGE,)) -> dict[str, tuple[int, int]]:
    """Return the open axes and the sizes that `program` itself says it holds for: what the model's code decided narrows `ranges`."""
    limits, sides = ranges(example, dynamic, specs), sides_of(program, specs)
    for name in limits:
        for side in sides.get(name, ()):
            allowed = program.range_constraints.get(side.node.expr) if isinstance(side, torch.SymInt) else None
            if allowed is not None:
                low, high = limits[name]
                # torch.export notes 2 for every open axis, also where 1 is taken; that is checked with the file.
                limits[name] = max(low, int(allowed.lower)) if allowed.lower > 2 else low, min(high, int(allowed.upper))
    return limits


def conditions_of(program: ExportedProgram, specs: Sequence[InputSpec] = (IMAGE,)) -> list[str]:
    """Return the checks on sizes in `program` as text over the names of the axes. Formats and runners that would lose them read it.

    torch leaves one out of the graph that its operators cannot express (``math.ceil(h / 2) > 100``); it is among these. That axes of one
    name have one size in all inputs is none of them: the runner refuses others by itself.

    Raises:
        LoweringError: a check is none that a runner could evaluate.
    """
    import sympy
    names = {side.node.expr: sympy.Symbol(name, integer=True) for name, sides in sides_of(program, specs).items() for side in sides
             if isinstance(side, torch.SymInt) and side.node.expr.is_Symbol}
    expressions = _CHECKS[program] if program in _CHECKS else _checks(program)
    # A check on a size that depends on data is evaluated inside the graph.
    named = [expression.xreplace(names) for expression in expressions if expression.free_symbols <= names.keys()]
    conditions = sorted(str(expression) for expression in named if expression is not sympy.true)
    try:
        own = {name: high for spec in specs for name, (_, high) in spec.ranges.items()}
        check_known(conditions, {**dict(zip(AXIS, (2, 480, 544), strict=True)), **own})
    except ValueError as exc:
        raise LoweringError(f'the model branches on its sizes by a function that a manifest cannot hold: {exc}; '
                            'write it with comparisons of whole numbers, or export to TorchScript') from exc
    return conditions


def is_fixed(side: Any, program: ExportedProgram) -> bool:
    """Return whether `side`, of a tensor in `program`, is one number."""
    if not isinstance(side, torch.SymInt):
        return True
    allowed = program.range_constraints.get(side.node.expr)
    return allowed is not None and bool(allowed.lower == allowed.upper)


def refused_corner(program: ExportedProgram, example: Tensor, dynamic: Sequence[str], checked: Mapping[str, Sequence[int]],
                   specs: Sequence[InputSpec] = (IMAGE,)) -> dict[str, int] | None:
    """Return a corner of the `checked` ranges, a size by open axis, that `program` refuses; None if it takes all."""
    limits, conditions = valid_ranges(program, example, dynamic, specs), conditions_of(program, specs)
    fixed = {name: (int(example.shape[axis]),) for name, axis in AXIS.items()}
    for corner in product(*(checked.get(name, only) if name in dynamic else only for name, only in fixed.items())):
        sizes = {**{name: limits[name][1] for name in limits if name not in AXIS}, **dict(zip(AXIS, corner, strict=True))}
        try:
            if any(not low <= sizes[name] <= high for name, (low, high) in limits.items()) or refused(conditions, sizes):
                return sizes
        except (ArithmeticError, ValueError):  # A condition that divides by a size is not met where that is zero.
            return sizes
    return None


def narrowed(spec: dict[str, Any], valid: dict[str, tuple[int, int]], conditions: list[str]) -> dict[str, Any]:
    """Return the manifest's description of an input with the sizes that the program takes. They may be fewer than were tried."""
    limits = {name: [max(low, valid[name][0]), min(high, valid[name][1])] if name in valid else [low, high]
              for name, (low, high) in spec.get('ranges', {}).items()}
    return {**spec, 'ranges': limits, 'conditions': conditions}
