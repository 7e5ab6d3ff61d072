"""Load and run a TorchScript file."""
from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

# Operators by which a script reads or writes files, or calls other machines; the others of the language only compute.
_OUTSIDE = re.compile(rb'\b(from_file|save|rpc_sync|rpc_async|rpc_remote)\s*\(')


def refusal(file: Path) -> str | None:
    """Return why `file` is not loaded without ``--trust``, or None.

    It is asked before loading, which runs the ``__setstate__`` of the file's classes.
    """
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        if len(set(names)) < len(names):
            return f'{file.name} has two entries of one name, of which readers take different ones'
        for name in names:
            found = _OUTSIDE.search(archive.read(name)) if name.endswith('.py') else None
            if found:
                return f'{file.name} calls {found.group(1).decode()} ({name}), which reaches beyond the model'
    return None


def load(file: Path, device: torch.device) -> Callable[..., Any]:
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        module = torch.jit.load(str(file), map_location=device)
    return lambda image: module(image)  # type: ignore[no-any-return]
