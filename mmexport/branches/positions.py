"""Find the range in the source of an instruction."""
from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from types import CodeType

# Line, last line, column, last column, as in `code.co_positions`.
Position = tuple[int | None, int | None, int | None, int | None]
# Python 3.10 knows the line of an instruction only; its range is then that of the condition or the statement on that line.
EXACT = hasattr(CodeType, 'co_positions')


@cache
def positions(code: CodeType) -> tuple[Position, ...]:
    """Return the range of each instruction of `code`, by number."""
    return tuple(code.co_positions()) if EXACT else tuple(_around(code.co_filename, line) for line in _lines(code))


def position_at(code: CodeType, instruction: int) -> Position:
    """Return the range of the instruction at the offset that a frame has as ``f_lasti``."""
    return positions(code)[instruction // 2]


@cache
def parsed(file: str) -> tuple[ast.Module | None, str]:
    """Return the syntax tree of `file` and its text; None if it cannot be read."""
    try:
        text = Path(file).read_text(encoding='utf-8')
        return ast.parse(text), text
    except (OSError, SyntaxError, ValueError):
        return None, ''


def _lines(code: CodeType) -> list[int | None]:
    return [line for start, end, line in code.co_lines() for _ in range(start, end, 2)]


@cache
def _around(file: str, line: int | None) -> Position:
    """Return the range of the condition on `line`, or of the statement."""
    tree = parsed(file)[0]
    if tree is None or line is None:
        return line, None, None, None
    there = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)]
    if not there:
        return line, None, None, None
    # `ast.walk` goes from the outside to the inside.
    statement = there[-1]
    test = getattr(statement, 'test', None)
    node: ast.stmt | ast.expr = test if isinstance(test, ast.expr) and test.lineno <= line <= (test.end_lineno or 0) else statement
    return node.lineno, node.end_lineno, node.col_offset, node.end_col_offset
