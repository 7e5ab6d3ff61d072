"""Test what the patches import: import-linter does not see them, for they lie beside the package."""
from __future__ import annotations

import ast
from pathlib import Path

PATCHES = Path(__file__).parents[2] / 'patches'
BELOW = ('ops', 'utils', 'patching', 'registry', 'errors')


def test_patches_import_what_lies_below_adapters_only() -> None:
    imported = [(file.name, node.module) for file in sorted(PATCHES.glob('*.py')) for node in ast.walk(ast.parse(file.read_text()))
                if isinstance(node, ast.ImportFrom) and not node.level and (node.module or '').startswith('mmexport')]
    assert len(imported) > 30
    assert [(file, module) for file, module in imported if str(module).split('.')[1] not in BELOW] == []
