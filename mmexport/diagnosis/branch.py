"""Name the Python branch behind a wrong or refused input. It must be recorded in the failing module."""
from __future__ import annotations

import inspect
import linecache
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from ..adapters import Adapter
from ..branches import Site
from .diagnosis import Diagnosis
from .remedies import BRANCHES


def at_branch(diagnosis: Diagnosis, adapter: Adapter, sites: Sequence[Site], refused: bool = False) -> Diagnosis:
    """Return `diagnosis` with place and remedy of the first site in the failing module. Without one, it is returned as it is.

    Args:
        sites: conditions that the failing input answers otherwise than the traced one.
        refused: the file refuses the input; then a condition of the user's anywhere is the reason.
    """
    modules: list[nn.Module] = [adapter.model.get_submodule(diagnosis.path)] if diagnosis.path else [adapter, adapter.model]
    for site in (site for site in sites if site.in_user_code):
        if refused or any(_holds(module, site) for module in modules):
            cause, words, *_ = BRANCHES[site.kind]
            return replace(diagnosis, file=site.file, line=site.line, source=linecache.getline(site.file, site.line).strip(), cause=cause,
                           remedy=words)
    return diagnosis


def _holds(module: nn.Module, site: Site) -> bool:
    """Return whether the condition is in the source of the module's class or of its bases."""
    for cls in type(module).__mro__:
        try:
            lines, start = inspect.getsourcelines(cls)
            file = inspect.getsourcefile(cls)
        except (OSError, TypeError):  # A class without source: torch's own in C, or one made at run time.
            continue
        if file and Path(file) == Path(site.file) and start <= site.line < start + len(lines):
            return True
    return False
