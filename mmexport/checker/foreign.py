"""Refuse files that would run code of the folder's author when they are verified.

An AOTInductor package is native code, ``torch.export.load`` evaluates strings, and TorchScript can write files. The sha256 of a manifest
shows that files belong together, not who made them.
"""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Of the manifest. 1 had no ranges and no schema of its own; what is newer may mean something else.
SCHEMA = 2


class Untrusted(ValueError):
    """Report that verifying this folder would run code of its author."""


def schema_of(manifest: Mapping[str, Any]) -> int:
    return int(manifest.get('mmexport', 1))


def refuse_foreign(folder: Path, manifest: Mapping[str, Any], trust: bool, runner: Any) -> None:
    """Raise if this checker does not know the folder's format. Also raise if it would run code and `trust` is off.

    Args:
        runner: the module of the format; ``RUNS`` names what of a file runs when it is loaded, ``refusal(file)`` looks into the file, and
            ``PRECISIONS`` are what it can be computed in below float32.

    Raises:
        ValueError: the manifest is newer, or names a precision that its format does not have.
        Untrusted: see the class.
    """
    schema = schema_of(manifest)
    if schema > SCHEMA:
        raise ValueError(f'its manifest has schema {schema}, and this checker knows {SCHEMA}: update mmexport')
    backend, precision = str(manifest['backend']), str(manifest.get('precision', 'float32'))
    if precision != 'float32' and precision not in getattr(runner, 'PRECISIONS', ()):
        raise ValueError(f'its manifest says {precision}, which {backend} files of mmexport do not have')
    if trust:
        return
    if hasattr(runner, 'RUNS'):
        raise Untrusted(f'a file of {backend} holds {runner.RUNS}, run when it is loaded: --trust, if you trust who made it')
    reason = runner.refusal(folder / str(manifest['file'])) if hasattr(runner, 'refusal') else None
    if reason:
        raise Untrusted(f'{reason}: --trust, if you trust who made it')
