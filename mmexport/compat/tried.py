"""Read the versions of torch that mmexport was tried with, for ``mmexport doctor``.

``tried.json`` is written by ``benchmarks/matrix_table.py`` from the results of ``matrix.py``.
"""
from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name('tried.json')


@dataclass(frozen=True)
class Tried:
    """Hold one environment that was tried.

    Attributes:
        formats: by format, how many models passed, of how many; a format that is not available there is left out.
    """

    torch: str
    numpy: str
    python: str
    formats: dict[str, tuple[int, int]]

    def in_words(self) -> str:
        """Return ``torchscript 19 of 19, onnx 18 of 19``."""
        return ', '.join(f'{name} {passed} of {total}' for name, (passed, total) in self.formats.items())


def tried() -> list[Tried]:
    """Return the environments that were tried, oldest torch first."""
    if not FILE.is_file():
        return []
    return [Tried(row['torch'], row['numpy'], row['python'], {name: (counts[0], counts[1]) for name, counts in row['formats'].items()})
            for row in json.loads(FILE.read_text())]


def tried_in_words(torch_version: str, python: str, numpy: str) -> str:
    """Return whether `torch_version` was tried, what passed there, and what is different here."""
    version = torch_version.partition('+')[0]
    rows = [row for row in tried() if row.torch == version]
    if not rows:
        return f'not tried; tried were torch {", ".join(dict.fromkeys(row.torch for row in tried()))}'
    row = max(rows, key=lambda row: (row.python == python, row.numpy == numpy))
    here = [f'{name} {present}' for name, tried_with, present in (('Python', row.python, python), ('numpy', row.numpy, numpy))
            if tried_with != present]
    return f'tried: {row.in_words()} models passed, with Python {row.python} and numpy {row.numpy}' + (
        f'; not tried with {" and ".join(here)}, which is here' if here else '')
