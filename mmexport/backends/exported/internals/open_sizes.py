"""Call ``torch.export.export`` with open sizes. What it cannot decide about them becomes a check at run time.

The option has had several names and places: ``prefer_deferred_runtime_asserts_over_guards`` of ``torch.export.export`` (torch 2.13), or
``allow_complex_guards_as_runtime_asserts`` of the private ``torch.export._trace._export`` (torch 2.8). Which one there is, is found out
from the signatures.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

OPTIONS = ('prefer_deferred_runtime_asserts_over_guards', 'allow_complex_guards_as_runtime_asserts')


def exporter() -> Callable[..., Any] | None:
    """Return ``torch.export.export`` with that option set, of the installed torch; None where it cannot leave sizes open."""
    from torch import export
    # torch 2.6 has AUTO, but not with a range.
    if not callable(getattr(getattr(export, 'Dim', None), 'AUTO', None)):
        return None
    # Before the option was public, export() called this one with `pre_dispatch`.
    private: dict[str, Any] = dict(pre_dispatch=True)
    for function, options in ((export.export, {}), (_private_export(), private)):
        names = inspect.signature(function).parameters if function is not None else {}
        for option in OPTIONS:
            if option in names:
                return partial(function, **{**options, option: True})
    return None


def _private_export() -> Any:
    try:
        from torch.export import _trace
    except ImportError:
        return None
    return getattr(_trace, '_export', None)
