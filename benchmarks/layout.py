"""Count modules, lines, import cycles and upward imports of the package at revisions of the repository.

An import is upward if it goes against the layers of today's pyproject.toml. A module that lay at the root counts to the layer that it was
moved to.

    python benchmarks/layout.py 03f220a~1 HEAD --out benchmarks/results/layout.json
"""
from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import tempfile
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import networkx
import tomllib
from common import ROOT, write

# Where a module or package of before the move belongs, if its name is not that of its layer.
MOVED = dict(
    dict.fromkeys(('libtorch', '__main__'), 'cli'), checkpoint='model', config='model', checking='checker', screening='device',
    **dict.fromkeys(('exporter', 'lowering', 'manifest', 'delivery', 'progressive', 'hook'), 'export'),
    **dict.fromkeys(('expected', 'cliffs', 'verify', 'proof', 'fresh', 'pipeline', 'memory', 'reference'), 'verification'),
    **dict.fromkeys(('answering', 'garbage', 'randomness', 'precision', 'progress'), 'utils'))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('revisions', nargs='+')
    parser.add_argument('--out', type=Path, required=True)
    args = parser.parse_args()
    rows = [counts(revision) for revision in args.revisions]
    print(*rows, sep='\n')
    write(args.out, rows)
    return 0


def counts(revision: str) -> dict[str, Any]:
    """Return the counts of one revision; a cycle is of modules at the root and packages, which are one node each."""
    commit = subprocess.run(['git', 'rev-parse', '--short', revision], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(['git', 'archive', commit, 'mmexport', 'patches'], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(['tar', '-x', '-C', folder], input=archive.stdout, check=True)
        files = sorted(Path(folder).rglob('*.py'))
        package = Path(folder) / 'mmexport'
        edges: dict[str, set[str]] = defaultdict(set)
        upward = []
        for file in sorted(package.rglob('*.py')):
            parts = file.relative_to(package).with_suffix('').parts
            names = {name for name in imported(file, parts) - {parts[0]} if not name.startswith('__')}
            edges[parts[0]] |= names
            upward += [f"{'.'.join(parts)} -> {name}" for name in sorted(names) if layer(name) < layer(parts[0])]
        graph = networkx.DiGraph([(name, other) for name, others in edges.items() for other in others])
        cycles = [sorted(component) for component in networkx.strongly_connected_components(graph) if len(component) > 1]
        lengths = {file.relative_to(folder).as_posix(): len(file.read_text().splitlines()) for file in files}
        return dict(revision=revision, commit=commit, modules_at_the_root=len([*package.glob('*.py')]), files=len(files),
                    lines=sum(lengths.values()), longest=max((length, name) for name, length in lengths.items()), cycles=cycles,
                    upward_imports=upward)


@cache
def layers() -> list[list[str]]:
    """Return the layers of pyproject.toml, the highest first."""
    contracts = tomllib.loads((ROOT / 'pyproject.toml').read_text())['tool']['importlinter']['contracts']
    names = next(contract['layers'] for contract in contracts if contract['type'] == 'layers')
    return [[name.strip().removeprefix('mmexport.') for name in layer.split(':')] for layer in names]


def layer(name: str) -> int:
    """Return the place of a module's layer, from the top; a package's own __init__ may import all."""
    name = MOVED.get(name, name)
    return next((place for place, names in enumerate(layers()) if name in names), 0)


def imported(file: Path, parts: tuple[str, ...]) -> set[str]:
    """Return the modules at the root and packages that a module imports, in functions too, but not for type checkers."""
    modules = set()
    tree = ast.parse(file.read_text())
    typing = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.If) and 'TYPE_CHECKING' in ast.dump(node.test)
              for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in typing:
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            # Of `a.b.c`, one dot is `a.b`; of a package's __init__, it is the package.
            base = [*parts[:len(parts) - node.level], *(node.module or '').split('.')]
            names = [name for name in base if name][:1] or [alias.name for alias in node.names]
            modules |= {name for name in names if name != '__init__'}
    return modules


if __name__ == '__main__':
    sys.exit(main())
