"""Test by their source that the checker and the runners import nothing of mmexport or OpenMMLab, whatever is installed here."""
from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / 'mmexport'
FILES = sorted([*(ROOT / 'checker').rglob('*.py'), *(ROOT / 'backends').glob('*/runner.py')])


@pytest.mark.parametrize('file', FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_only_torch_numpy_and_the_runtime(file: Path) -> None:
    forbidden = []
    for node in ast.walk(ast.parse(file.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            # One dot is the file's own folder; a runner is loaded by its path, and has none.
            inside = node.level == 1 or (node.level == 2 and file.parent.name in ('kinds', 'rules'))
            assert node.level == 0 or (inside and file.name != 'runner.py'), f'{file}:{node.lineno}'
            names = [node.module or ''] if node.level == 0 else []
        forbidden += [name for name in names if name.split('.')[0].startswith('mm') and name.split('.')[0] != 'mmap']
    assert forbidden == []


def test_every_format_has_a_runner() -> None:
    assert len([file for file in FILES if file.name == 'runner.py']) >= 6
