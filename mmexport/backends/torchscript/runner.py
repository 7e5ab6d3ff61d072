"""Load and run a TorchScript file."""
from __future__ import annotations

import io
import re
import tokenize
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

# Operators by which a script reads or writes files, or calls other machines; the others of the language only compute.
OUTSIDE = frozenset({'from_file', 'save', 'rpc_sync', 'rpc_async', 'rpc_remote'})


def refusal(file: Path) -> str | None:
    """Return why `file` is not loaded without ``--trust``, or None.

    It is asked before loading, which runs the ``__setstate__`` of the file's classes. The archive is read by torch's own reader, which the
    loader uses too: the same bytes may be another archive to another reader. That reader finds names in upper and lower case alike.
    """
    try:
        archive = torch._C.PyTorchFileReader(str(file))
        names = [str(name) for name in archive.get_all_records()]
    except RuntimeError as exc:
        return f'{file.name} is no archive that torch can read ({str(exc).splitlines()[0][:80]})'
    if len({name.lower() for name in names}) < len(names):
        return f'{file.name} has two entries of one name, of which readers take different ones'
    for name in names:
        # Files with this suffix hold Python source for error messages and are not run.
        code = name.lower().startswith('code/') and not name.lower().endswith('.debug_pkl')
        word = _reaches_out(bytes(archive.get_record(name))) if code else None
        if word:
            return f'{file.name} calls {word} ({name}), which reaches beyond the model'
    return None


def _reaches_out(code: bytes) -> str | None:
    """Return the first of `OUTSIDE` that is a name in `code`; where it cannot be split into tokens, anywhere in it."""
    try:
        names = [token.string for token in tokenize.tokenize(io.BytesIO(code).readline) if token.type == tokenize.NAME]
    except (tokenize.TokenError, SyntaxError, UnicodeDecodeError):
        names = re.findall(r'\w+', code.decode(errors='replace'))
    return next((name for name in names if name in OUTSIDE), None)


def load(file: Path, device: torch.device) -> Callable[..., Any]:
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        module = torch.jit.load(str(file), map_location=device)
    return lambda *inputs: module(*inputs)  # type: ignore[no-any-return]
