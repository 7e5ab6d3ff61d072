"""Find the keys of a table in which a size is looked up. The lookup is followed like comparisons with each of them."""
from __future__ import annotations

import ast
import inspect
from functools import cache
from itertools import islice
from types import CodeType, FrameType
from typing import Any

from .places import syntax_tree

# A larger table is reported as not followed.
MOST_KEYS = 64
_WRITES = {'setdefault', 'update', 'add', 'discard', 'remove', 'pop', 'popitem', 'clear'}


def keys_looked_up(frame: FrameType) -> tuple[float, ...]:
    """Return the numbers that are keys of the table at the instruction that `frame` runs; empty if the table is not found.

    Found are a dict or a set that is written in place, or reached by names and attributes, in ``table[size]``, ``table.get(size)`` and
    ``size in table``. A table that code of the same file writes to is a cache, of which the keys say nothing.
    """
    expression = _table_at(frame.f_code, frame.f_lasti)
    table = None if expression is None else _value(expression, frame)
    if not isinstance(table, (dict, set, frozenset)):
        return ()
    keys = sorted(key for key in table if isinstance(key, (int, float)) and not isinstance(key, bool))
    return tuple(keys) if len(keys) <= MOST_KEYS else ()


@cache
def _table_at(code: CodeType, instruction: int) -> ast.expr | None:
    """Return the expression of the table that is read at `instruction`; None for anything else, and for a cache."""
    position = next(islice(code.co_positions(), instruction // 2, None))
    tree = syntax_tree(code.co_filename)
    if tree is None:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) == position:
            table = _read_by(node)
            return None if table is None or _is_written(tree, ast.unparse(table)) else table
    return None


def _read_by(node: ast.expr) -> ast.expr | None:
    if isinstance(node, ast.Subscript):
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ('get', '__getitem__', '__contains__'):
        return node.func.value
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        return node.comparators[0]
    return None


def _is_written(tree: ast.Module, table: str) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) and ast.unparse(node.value) == table:
            return True
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr in _WRITES and ast.unparse(called.value) == table:
            return True
    return False


def _value(node: ast.expr, frame: FrameType) -> Any:
    """Evaluate names, attributes and constants, without running code of a property or of ``__getattr__``."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        return inspect.getattr_static(_value(node.value, frame), node.attr, None)
    parts = node.keys if isinstance(node, ast.Dict) else node.elts if isinstance(node, ast.Set) else []
    if any(not isinstance(part, ast.Constant) for part in parts):
        return None
    return {part.value for part in parts if isinstance(part, ast.Constant)}
