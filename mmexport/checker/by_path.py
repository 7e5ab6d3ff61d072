"""Import a module by its file, so that no package around it is imported."""
from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import Any


@cache
def module_at(file: Path) -> Any:
    """Return the module in `file`, the same one for every call."""
    name = f'checker_{file.parent.name}_{file.stem}'
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    # Before it runs: dataclasses look their module up.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
