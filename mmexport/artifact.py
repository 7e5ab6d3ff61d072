"""Describe the files of one backend."""
from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANIFEST = 'manifest.json'
SAMPLES = 'samples.npz'
REPORT = 'report.json'
OURS = (MANIFEST, SAMPLES, REPORT)
# The folder in a work dir for what failed its check.
FAILED = 'failed'


@dataclass(frozen=True)
class Artifact:
    """Hold one lowered file in a folder of its own.

    `manifest` holds inputs, outputs, dtypes, dynamic axes, preprocessing, classes, versions and how the file was made; on disk
    ``manifest.json`` adds the sha256 of `file`, which a copy inside the file cannot hold, and those of files that belong to it.
    """

    backend: str
    file: Path
    manifest: dict[str, Any]

    @property
    def folder(self) -> Path:
        return self.file.parent

    def write_manifest(self, verified: bool | None = None) -> dict[str, Any]:
        """Write ``manifest.json`` and return its content; `verified` is None if nothing was checked (yet)."""
        beside = sorted(path for path in self.folder.iterdir() if path not in (self.file, *(self.folder / name for name in OURS)))
        content = {**self.manifest, 'file': self.file.name, 'sha256': sha256(self.file),
                   'also': {path.name: sha256(path) for path in beside},
                   'bytes': sum(path.stat().st_size for path in (self.file, *beside)), 'verified': verified}
        if (self.folder / SAMPLES).is_file():
            content['samples_sha256'] = sha256(self.folder / SAMPLES)
        (self.folder / MANIFEST).write_text(json.dumps(content, indent=2) + '\n')
        return content

    @classmethod
    def read(cls, folder: str | Path) -> Artifact:
        manifest = json.loads((Path(folder) / MANIFEST).read_text())
        return cls(manifest['backend'], Path(folder) / manifest['file'], manifest)


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open('rb') as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
