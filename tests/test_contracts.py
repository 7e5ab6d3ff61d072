"""Test that the import contracts of pyproject.toml name every format."""
from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_format_is_in_the_contract_of_formats() -> None:
    contracts = (ROOT / 'pyproject.toml').read_text().split('[[tool.importlinter.contracts]]')
    listed = re.findall(r'"mmexport\.backends\.(\w+)"', next(part for part in contracts if 'independence' in part))
    assert sorted(listed) == sorted(file.parent.name for file in (ROOT / 'mmexport' / 'backends').glob('*/backend.py'))
