"""Define kinds of output, one module each: how it is compared, and when that comparison proves nothing.

A module has

* ``CONTINUOUS``: whether errors are judged by the output's scale; else decisions are compared;
* ``compare(names, expected, actual, evidence, tolerance, clear)``, which returns metrics, see `mmexport.checker.comparison.Comparison`;
* ``little_change(name, one, other, classes, tolerance, margin)``, which says why the outputs of two inputs are too much alike, or None;

and, if it needs them,

* ``ROW``: the name of the row that all outputs of this kind share;
* ``MAP = True``: every element is a label, and each of the frequent ones is tried as a constant answer;
* ``constant(values)``: the tensor that is tried as a constant answer; zeros without it;
* ``reduced(row)``: why a row of a file of reduced precision fails, or None; see `mmexport.checker.reduced` for the usual rules;
* ``CHOICE = True``: other outputs are computed from it, and eager can be made to take the file's own;
* ``FREE = True``, of such: floors are what noise moves where eager chooses anew, for files that do not give their choices; of one that
  does, no floor counts;
* ``classes(name, expected)``: the labels that win in an output, or None.
"""
from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from ..by_path import module_at

# Kinds that others have registered, by name.
_others: dict[str, Path] = {}


def add_kind(name: str, file: Path) -> None:
    """Make a kind known whose module lies outside the checker."""
    _others[name] = file


def other_kinds() -> dict[str, Path]:
    """Return the kinds whose modules lie outside the checker."""
    return dict(_others)


def kind_of(name: str) -> Any:
    """Return the module of the kind `name`.

    Raises:
        ValueError: there is none.
    """
    file = _others.get(name)
    if file is None:
        if not name.isidentifier() or not (Path(__file__).parent / f'{name}.py').is_file():
            raise ValueError(f'this checker does not know outputs of kind {name!r}: name its module with --kind {name}=FILE')
        return importlib.import_module(f'.{name}', __package__)
    return module_at(file)
