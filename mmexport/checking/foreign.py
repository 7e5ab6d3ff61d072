"""Refuse what would run code of a folder's author when the folder is verified.

``torch.export.load`` falls back to a plain unpickler where the restricted one refuses, and an AOTInductor package is native code. The
sha256 of a manifest shows that files belong together, not who made them.
"""
from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Of the manifest. 1 had no ranges and no schema of its own; what is newer may mean something else.
SCHEMA = 2
# What a format can be computed in, below which other rules hold.
PRECISIONS = {'onnx': ('float16',), 'openvino': ('bfloat16',), 'tensorrt': ('float16',)}
NATIVE = {'aotinductor': 'machine code', 'tensorrt': 'engines for one GPU, beside pickles'}


class Untrusted(ValueError):
    """Verifying this folder would run code of its author."""


def refuse_foreign(folder: Path, manifest: Mapping[str, Any], trust: bool) -> None:
    """Raise where the folder is not what this checker knows, or would run code and `trust` is off.

    Raises:
        ValueError: the manifest is newer, or names a precision that its format does not have.
        Untrusted: see the class.
    """
    schema = int(manifest.get('mmexport', 1))
    if schema > SCHEMA:
        raise ValueError(f'its manifest has schema {schema}, and this checker knows {SCHEMA}: update mmexport')
    backend, precision = str(manifest['backend']), str(manifest.get('precision', 'float32'))
    if precision != 'float32' and precision not in PRECISIONS.get(backend, ()):
        raise ValueError(f'its manifest says {precision}, which {backend} files of mmexport do not have')
    if trust:
        return
    if backend in NATIVE:
        raise Untrusted(f'a file of {backend} holds {NATIVE[backend]}, which runs when it is checked: --trust, if you trust who made it')
    if backend == 'torch_export':
        _refuse_pickles(folder / str(manifest['file']))


def _refuse_pickles(file: Path) -> None:
    """Let torch's restricted reader read every pickle in an archive of ``torch.export``; its full one is never asked."""
    import torch
    with zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        plain = _plain_tensors(archive)
        for name in names:
            inner = name.split('/', 1)[-1]
            if '/aotinductor/' in name or 'custom_obj' in Path(name).name:
                raise Untrusted(f'{file.name} holds {inner}, which runs code when it is loaded: --trust, if you trust who made it')
            if '/data/' not in name or name.endswith('.json') or Path(name).name in plain:
                continue
            try:
                torch.load(io.BytesIO(archive.read(name)), map_location='cpu', weights_only=True)
            except Exception as exc:  # The reader says in many ways what it refuses.
                raise Untrusted(f'{file.name} holds {inner}, a pickle of more than tensors, which could run code when it is loaded: '
                                '--trust, if you trust who made it') from exc


def _plain_tensors(archive: zipfile.ZipFile) -> set[str]:
    """Names of the entries that are bytes of tensors and are never unpickled."""
    found: set[str] = set()
    for name in archive.namelist():
        if name.endswith('_config.json'):
            entries = json.loads(archive.read(name)).get('config', {})
            found.update(str(entry['path_name']) for entry in entries.values() if entry.get('use_pickle') is False)
    return found
