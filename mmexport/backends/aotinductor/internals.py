"""Work around Inductor where it fails, does not terminate or is slow; results stay the same.

Each part names the torch that it was tried on. Where what it changes is not there, it is skipped; where one of them raises, all are, and
the model is compiled again without. The report says so.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any, TypeVar

import sympy
import torch

from ...utils.skipped import skip

T = TypeVar('T')
MASKS = 4  # Axes: image, query, height, width.


def compiled(compile_it: Callable[[], T]) -> T:
    """Call `compile_it` with all workarounds; without them where one of them raises."""
    try:
        with with_workarounds():
            return compile_it()
    except Exception as exc:
        if not _raised_here(exc):
            raise
        skip('all workarounds in Inductor', f'{type(exc).__name__}: {exc}', 'may be refused')
    return compile_it()


def _raised_here(exc: BaseException | None) -> bool:
    """Return whether the error, or one that it was raised from, went through one of the workarounds."""
    while exc is not None:
        if any(frame.f_code.co_filename == __file__ and frame.f_code is not compiled.__code__ for frame, _ in walk_tb(exc.__traceback__)):
            return True
        exc = exc.__cause__ or exc.__context__
    return False


@contextmanager
def with_workarounds() -> Iterator[None]:
    """Apply all Inductor workarounds inside the block."""
    with undecided_strides_as_false(), sums_multiplied_out(), masks_compared_by_torch():
        yield


@contextmanager
def undecided_strides_as_false() -> Iterator[None]:
    """Return False for comparisons of strides that torch cannot decide. Its caller does the same for other undecided ones.

    Of sizes like (a + 1) * (b + 1) sympy's remainder has a division in it, for which torch knows no range and raises ValueRangeError,
    though what it asks is only whether a layout may stay as it is; "no" makes it copy. SegFormer's sizes are such. Checked on torch 2.13.0
    (``_inductor/ir.py``, ``Layout._stride_expr_ge_or_false``); where there is no such method, nothing is changed.
    """
    try:
        from torch._inductor.ir import Layout
        from torch.utils._sympy.value_ranges import ValueRangeError
        original = vars(Layout)['_stride_expr_ge_or_false']
    except Exception as exc:
        skip("Inductor's comparison of strides", f'{type(exc).__name__}: {exc}')
        yield
        return

    def decided(left: Any, right: Any) -> bool:
        try:
            return bool(original.__func__(left, right))
        except ValueRangeError:
            return False

    Layout._stride_expr_ge_or_false = staticmethod(decided)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Layout._stride_expr_ge_or_false = original  # type: ignore[method-assign]


@contextmanager
def sums_multiplied_out() -> Iterator[None]:
    """Let Inductor simplify the index of a memory access by `multiplied_out` and not by ``sympy.simplify``.

    It asks by which stride an index grows with a loop's variable, to choose the loop that it vectorizes. In Swin's windows an index is a
    sum of remainders of rolled and padded positions, on which sympy's simplify tries every rule: the whole model did not compile in 2400 s.
    Checked on torch 2.13.0 (``_inductor/sizevars.py``, ``stride_at`` and ``simplify_index_in_vec_range``).
    """
    try:
        from torch._inductor import sizevars
        original = vars(sizevars)['sympy']
    except Exception as exc:
        skip("Inductor's simplification of indices", f'{type(exc).__name__}: {exc}')
        yield
        return
    sizevars.sympy = _Sympy()  # type: ignore[assignment]
    try:
        yield
    finally:
        sizevars.sympy = original


@contextmanager
def masks_compared_by_torch() -> Iterator[None]:
    """Compile ``masks > zero`` on a CPU as a call of torch. `masks` has four axes, the tensor `zero` none.

    Inductor's code for CPUs stores booleans one by one: a vector of them goes through an array. Only ``aten.gt.Tensor`` is looked at,
    which PyTorch code with a plain number does not call. Checked on torch 2.13.0 (``_inductor/lowering.py``, ``lowerings`` and
    ``fallback_handler``); where there are none of these, nothing is changed.
    """
    greater = torch.ops.aten.gt.Tensor
    try:
        from torch._inductor.lowering import fallback_handler, lowerings
        generated = lowerings[greater]
    except Exception as exc:
        skip("torch's comparison of masks in Inductor", f'{type(exc).__name__}: {exc}')
        yield
        return
    called = fallback_handler(greater)

    def lowered(one: Any, other: Any) -> Any:
        try:
            masks = len(one.get_size()) == MASKS and not other.get_size() and one.get_device().type == 'cpu'
        except AttributeError:  # A number, or another class in another version.
            masks = False
        return (called if masks else generated)(one, other)

    lowerings[greater] = lowered
    try:
        yield
    finally:
        lowerings[greater] = generated


def multiplied_out(expression: sympy.Basic) -> sympy.Basic:
    """Return `expression` as a sum of products. Anything else in it, as a floor or a remainder, is an unknown.

    That is enough for a difference of two indices to become 0, 1 or the stride that it is, and costs no search.
    """
    if not isinstance(expression, sympy.Expr):
        return sympy.simplify(expression)
    unknowns: dict[sympy.Expr, sympy.Dummy] = {}
    polynomial = sympy.expand(_polynomial(expression, unknowns))
    return polynomial.xreplace({unknown: meant for meant, unknown in unknowns.items()})


def _polynomial(expression: sympy.Expr, unknowns: dict[sympy.Expr, sympy.Dummy]) -> sympy.Expr:
    if isinstance(expression, (sympy.Add, sympy.Mul)):
        return expression.func(*[_polynomial(part, unknowns) for part in expression.args])
    if expression.is_Number or expression.is_Symbol:
        return expression
    return unknowns.setdefault(expression, sympy.Dummy(integer=expression.is_integer))


class _Sympy:
    """Wrap the package with another `simplify`."""

    simplify = staticmethod(multiplied_out)

    def __getattr__(self, name: str) -> Any:
        return getattr(sympy, name)
