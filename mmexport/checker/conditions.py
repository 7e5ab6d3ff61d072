"""Evaluate the conditions on input sizes in a manifest, without running code of its author."""
from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# Larger exponents do not occur in arithmetic on sizes, and could take unlimited time.
MAX_EXPONENT = 16


def _power(base: Any, exponent: Any) -> Any:
    if abs(exponent) > MAX_EXPONENT:
        raise ValueError(f'an exponent of {exponent} is no arithmetic on sizes: this manifest cannot be followed')
    return base ** exponent


_BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Div: operator.truediv, ast.Pow: _power, ast.BitAnd: operator.and_, ast.BitOr: operator.or_}
_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq, ast.NotEq: operator.ne}
# As sympy and torch print them.
_CALLS: dict[str, Callable[..., Any]] = {
    'Max': max, 'Min': min, 'Ne': operator.ne, 'Eq': operator.eq, 'Mod': operator.mod, 'PythonMod': operator.mod,
    'FloorDiv': operator.floordiv, 'CleanDiv': operator.floordiv, 'Not': operator.not_, 'CeilDiv': lambda a, b: -(-a // b), 'Abs': abs,
    'IntTrueDiv': operator.truediv, 'FloatTrueDiv': operator.truediv, 'ToFloat': float, 'PowByNatural': _power,
    'FloatPow': _power, 'CeilToInt': math.ceil, 'FloorToInt': math.floor, 'TruncToInt': math.trunc, 'RoundToInt': round,
    'ceiling': math.ceil, 'floor': math.floor, 'sqrt': math.sqrt, 'OpaqueUnaryFn_sqrt': math.sqrt, 'OpaqueUnaryFn_log2': math.log2,
    'OpaqueUnaryFn_log': math.log, 'OpaqueUnaryFn_exp': math.exp}


def refused(conditions: Sequence[str], sizes: Mapping[str, int]) -> str | None:
    """Return the first condition that `sizes` (by name of axis) do not meet; None where they meet all.

    Raises:
        ValueError: a condition is not arithmetic on sizes.
    """
    return next((text for text in conditions if not _value(ast.parse(text, mode='eval').body, sizes)), None)


def check_known(conditions: Sequence[str], sizes: Mapping[str, int]) -> None:
    """Raise ValueError if `refused` cannot evaluate one of `conditions`."""
    for text in conditions:
        _value(ast.parse(text, mode='eval').body, sizes)


def _value(node: ast.expr, sizes: Mapping[str, int]) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float, bool)):
        return node.value
    if isinstance(node, ast.Name) and node.id in sizes:
        return sizes[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Invert)):
        inside = _value(node.operand, sizes)
        return -inside if isinstance(node.op, ast.USub) else not inside
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_value(node.left, sizes), _value(node.right, sizes))
    if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
        values = [_value(part, sizes) for part in (node.left, *node.comparators)]
        return all(_COMPARE[type(op)](one, other) for op, one, other in zip(node.ops, values, values[1:], strict=False))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS and not node.keywords:
        return _CALLS[node.func.id](*(_value(part, sizes) for part in node.args))
    raise ValueError(f'{ast.unparse(node)} is no arithmetic on sizes: this manifest cannot be followed')
