"""Lower one graph with raw outputs and decisions, then cut it. The check takes both, the user the decisions."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SUFFIX = '.raw'


@contextmanager
def with_raw(adapter: Any) -> Iterator[list[dict[str, Any]]]:
    """Let `adapter` return its raw outputs too, if they are to be checked; yield their specs."""
    if not getattr(adapter, 'check_raw', False):
        yield []
        return
    with adapter.with_raw() as specs:
        yield [spec.as_dict() for spec in specs[len(adapter.specs):]]


def raw_folder(folder: Path) -> Path:
    """Return the folder of the graph with raw outputs, which is checked and never delivered."""
    return folder.with_name(f'{folder.name}{SUFFIX}')


def raw_manifest(manifest: dict[str, Any], raw: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the manifest of the graph with raw outputs."""
    return {**manifest, 'raw': list(raw), 'outputs': [*manifest['outputs'], *raw]}
