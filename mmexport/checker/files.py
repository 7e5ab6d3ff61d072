"""Load a lowered file without the package that made it."""
from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .admission import Refusal, why_refused
from .by_path import module_at

Runner = Callable[..., tuple[Tensor, ...]]
# One folder a format, beside this one; `runner.py` is loaded by its path, so that no package is imported.
FORMATS = Path(__file__).resolve().parents[1] / 'backends'
# Runners of formats that others have registered, by name of the backend.
_others: dict[str, Path] = {}


def stale(folder: Path, manifest: Mapping[str, Any], samples: str | None = None) -> str | None:
    """Return the reason why the file, or `samples` beside it, do not match the manifest; None if they do."""
    for name in (str(manifest['file']), *manifest.get('also', {})):
        if Path(name).name != name:
            return f'the manifest names {name!r}, and its files lie beside it'
    digest_of = {str(manifest['file']): manifest['sha256'], **manifest.get('also', {})}
    if samples is not None and 'samples_sha256' in manifest:
        digest_of[samples] = manifest['samples_sha256']
    for name, expected_digest in digest_of.items():
        file = folder / name
        if not file.is_file():
            return f'{file} is missing'
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        if digest != expected_digest:
            return (f'{file.name} is not the file of this manifest (sha256 {digest[:12]}..., the manifest says '
                    f'{str(expected_digest)[:12]}...): it was replaced or cut short; export again')
    return None


def load(folder: Path, manifest: Mapping[str, Any], device: torch.device) -> Guarded:
    """Load the file of `manifest` and return a callable: inputs on `device` -> outputs.

    Raises:
        ValueError: this checker does not know the backend, or the file was written with other versions and cannot be loaded here.
        ImportError: its runtime is not installed.
    """
    module = runner_of(manifest)
    try:
        runner: Runner = module.load(folder / str(manifest['file']), device)
    except ImportError:
        raise
    except Exception as exc:
        if others := _other_versions(manifest, getattr(module, 'PACKAGES', ('torch',))):
            raise ValueError(f'{manifest["file"]} was written with {others}, and does not load: {type(exc).__name__}: {reason_of(exc)}; '
                             'check it with that version, or export again') from exc
        raise
    _check_names(manifest, dict(module.names(runner)) if hasattr(module, 'names') else {})
    return Guarded(runner, manifest)


def reason_of(exc: Exception) -> str:
    """Return the last line of an error's message."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return lines[-1][:300] if lines else '(no message)'


def _other_versions(manifest: Mapping[str, Any], packages: Sequence[str]) -> str:
    """Return ``torch 2.14.1 (here 2.1.2)`` of the `packages` that have another version here; '' if none has."""
    differences = []
    for name in packages:
        written = str(manifest.get('versions', {}).get(name) or '').partition('+')[0]
        try:
            here = metadata.version(name).partition('+')[0]
        except metadata.PackageNotFoundError:
            continue
        if written and written != here:
            differences.append(f'{name} {written} (here {here})')
    return ', '.join(differences)


class Guarded:
    """Refuse inputs that the manifest does not declare, then call the runner: not every format can hold such a check."""

    def __init__(self, runner: Runner, manifest: Mapping[str, Any]) -> None:
        self.runner = runner
        self.specs: Sequence[Mapping[str, Any]] = manifest.get('inputs', ())

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        reason = why_refused(self.specs, inputs)
        if reason:
            raise Refusal(f'mmexport: {reason}')
        return self.runner(*inputs)


def _check_names(manifest: Mapping[str, Any], runner_names: Mapping[str, list[set[str]]]) -> None:
    """Raise if the names of inputs or outputs differ from the manifest.

    Users ask for an output by its name, and here it is read by its position. A runtime may know one by several names.
    """
    for what, names in runner_names.items():
        expected = [str(spec['name']) for spec in manifest.get(what, ()) if 'name' in spec]
        if expected and (len(names) != len(expected) or not all(name in known for name, known in zip(expected, names, strict=True))):
            names_in_file = ', '.join('/'.join(sorted(known)) for known in names)
            raise ValueError(f'the {what} of the file are named {names_in_file}, and the manifest has {", ".join(expected)}')


def add_runner(backend: str, file: Path) -> None:
    """Make the runner of a format known that lies outside mmexport."""
    _others[backend] = file


def runner_of(manifest: Mapping[str, Any]) -> Any:
    """Return the module that loads files of the manifest's backend: ``runner.py`` in the folder of the format.

    ``load(file, device)`` returns a callable, inputs -> outputs. It may have more: ``ready()`` imports the runtime; ``facts(runner)`` says
    what only shows once the file is loaded, and what it raises fails the check; ``names(runner)`` gives the names of the ``inputs`` and
    ``outputs``; ``PACKAGES`` are those that write and read the file, by default torch; `mmexport.checker.foreign` has the rest.
    """
    backend = str(manifest['backend'])
    file = _others.get(backend) or FORMATS / backend / 'runner.py'
    if not backend.isidentifier() or not file.is_file():
        raise ValueError(f'no loader for backend {backend!r}: name its runner.py with --runner')
    return module_at(file)
