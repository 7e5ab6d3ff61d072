"""Refuse files that would run code of the folder's author when they are verified.

An AOTInductor package is native code, ``torch.export.load`` evaluates strings, and TorchScript can write files. The sha256 of a manifest
shows that files belong together, not who made them.
"""
from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Of the manifest. 1 had no ranges and no schema of its own; what is newer may mean something else.
SCHEMA = 2
# What a format can be computed in, below which other rules hold.
PRECISIONS = {'onnx': ('float16',), 'openvino': ('bfloat16',), 'tensorrt': ('float16',)}
# torch.export.load unpickles, and has sympy evaluate the sizes of the graph, which are strings of the file: both run what they are given.
NATIVE = {'aotinductor': 'machine code', 'tensorrt': 'engines for one GPU, beside pickles',
          'torch_export': 'pickles, and sizes that are evaluated as Python'}
_OUTSIDE = re.compile(rb'\b(from_file|save|rpc_sync|rpc_async|rpc_remote)\s*\(')


class Untrusted(ValueError):
    """Report that verifying this folder would run code of its author."""


def schema_of(manifest: Mapping[str, Any]) -> int:
    return int(manifest.get('mmexport', 1))


def refuse_foreign(folder: Path, manifest: Mapping[str, Any], trust: bool) -> None:
    """Raise if this checker does not know the folder's format, or if it would run code and `trust` is off.

    Raises:
        ValueError: the manifest is newer, or names a precision that its format does not have.
        Untrusted: see the class.
    """
    schema = schema_of(manifest)
    if schema > SCHEMA:
        raise ValueError(f'its manifest has schema {schema}, and this checker knows {SCHEMA}: update mmexport')
    backend, precision = str(manifest['backend']), str(manifest.get('precision', 'float32'))
    if precision != 'float32' and precision not in PRECISIONS.get(backend, ()):
        raise ValueError(f'its manifest says {precision}, which {backend} files of mmexport do not have')
    if trust:
        return
    if backend in NATIVE:
        raise Untrusted(f'a file of {backend} holds {NATIVE[backend]}, which run when it is loaded: --trust, if you trust who made it')
    if backend == 'torchscript':
        _refuse_file_operators(folder / str(manifest['file']))


def _refuse_file_operators(file: Path) -> None:
    """Refuse TorchScript that reads or writes files, or calls other machines.

    The other operators of the language only compute.

    Before the file is loaded: loading runs the ``__setstate__`` of its classes.
    """
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        if len(set(names)) < len(names):
            raise Untrusted(f'{file.name} has two entries of one name, of which readers take different ones')
        for name in names:
            found = _OUTSIDE.search(archive.read(name)) if name.endswith('.py') else None
            if found:
                raise Untrusted(f'{file.name} calls {found.group(1).decode()} ({name}), which reaches beyond the model: --trust, if '
                                'you trust who made it')
