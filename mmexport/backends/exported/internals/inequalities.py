"""Compare conditions on symbolic sizes, of which torch writes one in several ways."""
from __future__ import annotations

from typing import Any


def canonical(expression: Any) -> Any:
    """Return a form that an inequality of whole numbers, its negation and its rewritings share."""
    import sympy
    if isinstance(expression, sympy.Not):
        return canonical(expression.args[0])
    if isinstance(expression, (sympy.And, sympy.Or)):
        return frozenset(canonical(part) for part in expression.args)
    if not isinstance(expression, sympy.core.relational.Relational):
        return expression
    difference = sympy.expand(expression.lhs - expression.rhs)
    if isinstance(expression, (sympy.Eq, sympy.Ne)):
        return 'equal', frozenset((difference, sympy.expand(-difference)))
    # a < b is a + 1 <= b; of a <= b and its negation b + 1 <= a the border is the same pair of numbers.
    if isinstance(expression, sympy.StrictLessThan):
        border = (difference, difference + 1)
    elif isinstance(expression, sympy.LessThan):
        border = (difference - 1, difference)
    elif isinstance(expression, sympy.StrictGreaterThan):
        border = (difference - 1, difference)
    else:
        border = (difference, difference + 1)
    return 'order', frozenset(sympy.expand(sign * part) for sign in (1, -1) for part in border)


def checks_implied_by(expression: Any) -> set[Any]:
    """Return canonical forms of the checks that answer the model's question `expression`: "differs" follows from "is larger"."""
    import sympy
    if not isinstance(expression, (sympy.Eq, sympy.Ne)):
        return {canonical(expression)}
    orders = sympy.StrictLessThan, sympy.StrictGreaterThan
    return {canonical(expression), *(canonical(order(*expression.args, evaluate=False)) for order in orders)}


def always_stays(expression: Any) -> bool:
    """Return whether a check is kept wherever it comes from: sizes are equal, or depend on data."""
    import sympy
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
    return isinstance(expression, sympy.Eq) or bool(free_unbacked_symbols(expression))
