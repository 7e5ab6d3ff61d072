"""Find the keys of a table in which a size is looked up. The lookup is followed like comparisons with each of them."""
from __future__ import annotations

import ast
import inspect
from functools import cache
from types import CodeType, FrameType
from typing import Any

from .positions import EXACT, parsed, position_at

# A larger table is reported as not followed.
MOST_KEYS = 64
_WRITES = {'setdefault', 'update', 'add', 'discard', 'remove', 'pop', 'popitem', 'clear'}


def keys_looked_up(frame: FrameType) -> tuple[float, ...]:
    """Return the numbers that are keys of the table at the instruction that `frame` runs; empty if the table is not found.

    Found are a dict or a set that is written in place, or reached by names and attributes, in ``table[size]``, ``table.get(size)`` and
    ``size in table``. A table that code of the same file writes to is a cache, of which the keys say nothing.
    """
    tables = [table for table in (_value(expression, frame) for expression in _tables_at(frame.f_code, frame.f_lasti))
              if isinstance(table, (dict, set, frozenset))]
    # Of two tables in one statement it is not known which is read.
    if len(tables) != 1:
        return ()
    keys = sorted(key for key in tables[0] if isinstance(key, (int, float)) and not isinstance(key, bool))
    return tuple(keys) if len(keys) <= MOST_KEYS else ()


@cache
def _tables_at(code: CodeType, instruction: int) -> list[ast.expr]:
    """Return the expression of the table that is read at `instruction`; none for anything else, and for a cache.

    Where the range of an instruction is not exact, there may be others.
    """
    line, end, column, stop = position_at(code, instruction)
    tree = parsed(code.co_filename)[0]
    if tree is None or line is None or end is None or column is None or stop is None:
        return []
    expressions = [node for node in ast.walk(tree) if isinstance(node, ast.expr)]
    if EXACT:
        there = [node for node in expressions
                 if (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset) == (line, end, column, stop)][:1]
    else:
        there = [node for node in expressions if (line, column) <= (node.lineno, node.col_offset)
                 and (node.end_lineno or 0, node.end_col_offset or 0) <= (end, stop)]
    tables = [table for table in map(_read_by, there) if table is not None]
    return [] if any(_is_written(tree, ast.unparse(table)) for table in tables) else tables


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
