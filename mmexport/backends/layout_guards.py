"""Checks in an exported program that limit its sizes for no reason of the model's.

Whether a size is 1, or two sizes differ, decides in torch itself how a result is laid out in memory, never what it is; torch.export
writes the answer of its example into the program as a check all the same, and a Swin that was exported with several windows then refuses
a picture of one. What the model's own code decides by such a question must stay a check: there another answer is another model.
"""
from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_TORCH = str(Path(torch.__file__).parent)


@contextmanager
def questions_of_the_model() -> Iterator[set[str]]:
    """The conditions on symbolic sizes, and their negations, by which code outside of torch branches inside the block."""
    asked: set[str] = set()
    original = torch.SymBool.__bool__

    def noting(condition: torch.SymBool) -> bool:
        if not sys._getframe(1).f_code.co_filename.startswith(_TORCH):
            import sympy
            expression = condition.node.expr
            asked.update((str(expression), str(sympy.Not(expression))))
        return original(condition)

    with mock.patch.object(torch.SymBool, '__bool__', noting):
        yield asked


def drop_layout_guards(program: ExportedProgram, asked: set[str]) -> int:
    """Take out every check of the form "these sizes differ" or "this one is larger" that is not among `asked`; returns how many.

    "These sizes are equal" stays. Where an operator itself needs an inequality, it raises by itself.
    """
    graph = program.graph_module.graph
    checks = [node for node in graph.nodes if node.target is torch.ops.aten._assert_scalar.default and _of_layout(_condition(node), asked)]
    for node in checks:
        graph.erase_node(node)
    graph.eliminate_dead_code()
    program.graph_module.recompile()
    # They would come back with the next pass over the program.
    env = next(node.meta['val'].fake_mode.shape_env for node in graph.nodes if hasattr(node.meta.get('val'), 'fake_mode'))
    for pending in env.deferred_runtime_asserts.values():
        pending[:] = [check for check in pending if not _of_layout(str(check.expr), asked)]
    return len(checks)


def _condition(node: Any) -> str:
    return str(node.args[1]).removeprefix('Runtime assertion failed for expression ').rsplit(' on node ', 1)[0]


def _of_layout(condition: str, asked: set[str]) -> bool:
    return not condition.startswith('Eq(') and condition not in asked
