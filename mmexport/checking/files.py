"""Loading a lowered file without the package that made it."""
from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

Runner = Callable[[Tensor], tuple[Tensor, ...]]


def stale(folder: Path, manifest: Mapping[str, Any]) -> str | None:
    """Why the file is not the one that the manifest describes, or None."""
    file = folder / str(manifest['file'])
    if not file.is_file():
        return f'{file} is missing'
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest != manifest['sha256']:
        return (f'{file.name} is not the file of this manifest (sha256 {digest[:12]}..., the manifest says '
                f"{str(manifest['sha256'])[:12]}...): it was replaced or cut short; export again")
    return None


def load(folder: Path, manifest: Mapping[str, Any], device: torch.device) -> Runner:
    """A callable: image on `device` -> outputs.

    Raises:
        ValueError: this checker does not know the backend.
    """
    if manifest['backend'] not in LOADERS:
        raise ValueError(f"no loader for backend {manifest['backend']!r}")
    return LOADERS[manifest['backend']](folder / str(manifest['file']), device)


def _torchscript(file: Path, device: torch.device) -> Runner:
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        module = torch.jit.load(str(file), map_location=device)
    return lambda image: module(image)  # type: ignore[no-any-return]


LOADERS: dict[str, Callable[[Path, torch.device], Runner]] = {'torchscript': _torchscript}
