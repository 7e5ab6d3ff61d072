"""Find where a condition is in the source, and which conditions cannot go wrong silently."""
from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache
from types import CodeType

from .positions import parsed, position_at

# Calls that only print or log.
_SAYS = {'warn', 'warning', 'info', 'debug', 'print', 'print_log', 'warn_once', 'warning_once', 'info_once', 'debug_once'}


def _harmless(body: Sequence[ast.stmt]) -> bool:
    """Return whether the statements only refuse or only say something."""
    return bool(body) and all(_refuses([step]) or isinstance(step, (ast.Pass, ast.Assert)) or (
        isinstance(step, ast.Expr) and (isinstance(step.value, ast.Constant) or (
            isinstance(step.value, ast.Call) and _name(step.value) in _SAYS))
    ) or (isinstance(step, ast.If) and _harmless(step.body) and (not step.orelse or _harmless(step.orelse))) for step in body)


def _refuses(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Raise)


def _name(call: ast.Call) -> str:
    return getattr(call.func, 'attr', getattr(call.func, 'id', ''))


def _is_torch_check(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr.startswith('_check') and ast.unparse(call.func.value) == 'torch'


def _passed_over(around: Sequence[ast.expr | ast.stmt]) -> bool:
    """Return whether a condition only refuses, only warns, or is part of a message. `around` holds the nodes that enclose it."""
    pairs = list(zip(around, [*around[1:], around[-1]], strict=True))
    if any(isinstance(outer, ast.Try) and outer.handlers and inner in outer.body for outer, inner in pairs):
        # What is raised there may be caught, and another way be taken.
        return False
    for outer, inner in pairs:
        if isinstance(outer, (ast.Assert, ast.Raise)):
            return True
        if isinstance(outer, ast.Call) and (_is_torch_check(outer) or _name(outer) in _SAYS):
            return True
        if isinstance(outer, ast.If) and inner is outer.test:
            quiet = _harmless(outer.body) and (not outer.orelse or _harmless(outer.orelse))
            if quiet or _refuses(outer.body) or _refuses(outer.orelse):
                return True
        elif isinstance(outer, ast.If) and inner in outer.body and _harmless([outer]):
            return True
    return False


@cache
def inside_try(code: CodeType, instruction: int) -> bool:
    """Return whether the instruction is in the body of a ``try`` with handlers: what is raised there may lead another way."""
    line = position_at(code, instruction)[0]
    tree = parsed(code.co_filename)[0]
    return tree is not None and line is not None and any(
        isinstance(node, ast.Try) and node.handlers and node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)
        for node in ast.walk(tree))


@cache
def place_of(code: CodeType, instruction: int, caught: bool = False) -> tuple[int, int, str, str] | None:
    """Return line, column, text and surrounding text of the expression at a frame; None if it cannot go wrong silently.

    Args:
        caught: whether a caller may catch what is raised here, so that refusing is a branch too.
    """
    line, end, column, stop = position_at(code, instruction)
    tree, text = parsed(code.co_filename)
    if tree is None or line is None or end is None or column is None or stop is None:
        return line or code.co_firstlineno, column or 0, '', ''
    lines = text.splitlines()[line - 1:end]
    around = [node for node in ast.walk(tree) if isinstance(node, (ast.expr, ast.stmt)) and (
        node.lineno, node.col_offset) <= (line, column) and (
        node.end_lineno, node.end_col_offset) >= (end, stop)]  # type: ignore[operator]
    if around and not caught and _passed_over(around):
        return None
    whole = ' '.join(part.strip() for part in lines)
    return line, column, whole if len(lines) > 1 else lines[0].encode()[column:stop].decode(), whole
