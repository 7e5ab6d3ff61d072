"""Remove checks on sizes in an exported program that the model does not need.

Whether a size is 1, or two sizes differ, decides in torch itself how a result is laid out in memory, never what it is; torch.export
writes the result for its example into the program as a check all the same, and a Swin that was exported with several windows then refuses
a picture of one. What the model's own code decides by such a comparison must stay a check: with the other result it takes another branch.

A check is identified by its origin, the stack of the assertion, not by its text: torch rewrites ``3 * h >= 2 * w`` into ``2 * w <= 3 * h``.

Tried on torch 2.8.0, 2.10.0, 2.13.0 and 2.14.1 (``torch/fx/experimental/symbolic_shapes.py``: ``RuntimeAssert``, ``ShapeEnv``). After any
error here every check stays: such a program is right, and refuses more sizes.
"""
from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch

from ....utils.skipped import skip
from .inequalities import always_stays, canonical, checks_implied_by

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_TORCH = str(Path(torch.__file__).parent) + os.sep
# Files between a comparison of a symbolic size and the code that makes it.
_MACHINERY = tuple(f'{_TORCH}{name}' for name in ('fx/', '_guards', 'utils/', '_logging', '_dispatch'))
_ASKING = f'{_TORCH}__init__.py'
# Where torch decides about strides, broadcasting and memory formats.
_LAYOUT = tuple(f'{_TORCH}{name}' for name in ('_prims', '_refs', '_meta_registrations', '_subclasses', '_decomp', '_inductor', '_ops',
                                                '_higher_order_ops', '_library'))

_COMMON = f'{_TORCH}_prims_common'
_MEMORY = re.compile('contiguous|overlapping|stride|channels_last')
_OPERATORS = f'{_TORCH}_ops.py'
# Operators whose shape is given by their arguments: what else their kernel asks about sizes is whether a stride exists, and where a program
# meets a size for which there is none, the operator raises.
_RESHAPING = frozenset({'aten::view', 'aten::reshape', 'aten::_unsafe_view', 'aten::flatten', 'aten::unflatten'})


@dataclass
class GuardLog:
    """Record the comparisons of symbolic sizes that were made during an export.

    Attributes:
        by_model: conditions by which code outside of torch branches, in canonical form. One that torch asked first gives no check of its
            own when the model asks it, so the origin of checks alone is not enough.
        layout: by text of a check, whether each question that made it came from torch's own layout of results.
        problem: the error after which nothing that was recorded is used.
    """

    by_model: set[Any] = field(default_factory=set)
    layout: dict[str, bool] = field(default_factory=dict)
    problem: str | None = None

    def failed(self, exc: Exception) -> None:
        self.problem = f'{type(exc).__name__}: {exc}'
        skip('dropping checks on layouts', self.problem, 'a program may refuse sizes that the model takes')


@contextmanager
def guards_of_the_model() -> Iterator[GuardLog]:
    """Record who asks about symbolic sizes inside the block."""
    guard_log = GuardLog()
    try:
        from torch.fx.experimental import symbolic_shapes
        original, make, environment = torch.SymBool.__bool__, symbolic_shapes.RuntimeAssert, symbolic_shapes.ShapeEnv
    except Exception as exc:
        guard_log.failed(exc)
        yield guard_log
        return

    def noting(condition: torch.SymBool) -> bool:
        try:
            if not sys._getframe(1).f_code.co_filename.startswith(_TORCH):
                guard_log.by_model |= checks_implied_by(condition.node.expr)
        except Exception as exc:
            guard_log.failed(exc)
        return original(condition)

    def making(expr: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            text = str(expr)
            # The stack that torch keeps with a check is emptied before the program is returned.
            guard_log.layout[text] = guard_log.layout.get(text, True) and _asked_for_layout(sys._getframe(1))
        except Exception as exc:
            guard_log.failed(exc)
        return make(expr, *args, **kwargs)

    refine = getattr(environment, '_refine_ranges', None)

    def refining(env: Any, expression: Any) -> None:
        try:
            narrows = not _asked_for_memory(sys._getframe(1)) or always_stays(expression)
        except Exception as exc:
            guard_log.failed(exc)
            narrows = True
        # Else the answer of the example would become a range of sizes, which is a check that cannot be dropped.
        if narrows:
            refine(env, expression)  # type: ignore[misc]

    with (mock.patch.object(torch.SymBool, '__bool__', noting), mock.patch.object(symbolic_shapes, 'RuntimeAssert', making),
          mock.patch.object(environment, '_refine_ranges', refining) if refine else nullcontext()):
        yield guard_log


def sizes_of(program: ExportedProgram) -> Any:
    """Return torch's record of the symbolic sizes of `program`, with their checks."""
    return next(node.meta['val'].fake_mode.shape_env for node in program.graph.nodes if hasattr(node.meta.get('val'), 'fake_mode'))


def drop_layout_guards(program: ExportedProgram, guard_log: GuardLog) -> int:
    """Remove every check "these sizes differ" or "this one is larger" that torch added itself; return how many.

    "These sizes are equal" stays, and so do checks of the model, of unknown origin, on sizes that depend on data, and those that the
    model asked too. Where an operator itself needs an inequality, it raises by itself.
    """
    if guard_log.problem:
        return 0
    graph = program.graph_module.graph
    try:
        env = sizes_of(program)
        pending = [check for checks in env.deferred_runtime_asserts.values() for check in checks]
        stays = {str(check.expr): _stays(check.expr, guard_log) for check in pending}
        checks = [node for node in graph.nodes if node.target is torch.ops.aten._assert_scalar.default
                  and not stays.get(_condition(node), True)]
    except Exception as exc:  # Nothing was changed so far.
        guard_log.failed(exc)
        return 0
    for node in checks:
        graph.erase_node(node)
    graph.eliminate_dead_code()
    program.graph_module.recompile()
    # They would come back with the next pass over the program.
    for pending_of_symbol in env.deferred_runtime_asserts.values():
        pending_of_symbol[:] = [check for check in pending_of_symbol if stays[str(check.expr)]]
    return len(checks)


def _stays(expression: Any, guard_log: GuardLog) -> bool:
    if always_stays(expression) or canonical(expression) in guard_log.by_model:
        return True
    return not guard_log.layout.get(str(expression), False)


def _asked_for_memory(frame: FrameType | None) -> bool:
    """Return whether the comparison comes from a contiguity, stride or reshape check in torch."""
    while frame is not None and frame.f_code.co_filename.startswith(_MACHINERY):
        frame = frame.f_back
    if frame is None:
        return False
    if frame.f_code.co_filename == _OPERATORS:
        operator = frame.f_locals.get('self')
        return isinstance(operator, torch._ops.OpOverload) and operator._schema.name in _RESHAPING
    return frame.f_code.co_filename.startswith(_COMMON) and bool(_MEMORY.search(frame.f_code.co_name))


def _asked_for_layout(frame: FrameType | None) -> bool:
    """Return whether torch itself asks, for a memory layout; False if unknown."""
    asked_in_python = False
    while frame is not None:
        file = frame.f_code.co_filename
        if file == _ASKING:
            asked_in_python = True
        elif file.startswith(_LAYOUT):
            return True
        elif not file.startswith(_MACHINERY) and file != __file__ and Path(file).name not in ('contextlib.py', 'functools.py'):
            # A kernel in C++ asks without Python: then the frame is that of the call of an operator.
            return not asked_in_python and not file.startswith(_TORCH)
        frame = frame.f_back
    return False


def _condition(node: Any) -> str:
    return str(node.args[1]).removeprefix('Runtime assertion failed for expression ').rsplit(' on node ', 1)[0]
