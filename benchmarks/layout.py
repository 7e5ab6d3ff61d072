"""Count modules, lines and import cycles of the package at revisions of the repository.

    python benchmarks/layout.py 03f220a~1 HEAD --out benchmarks/results/layout.json
"""
from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import networkx
from common import ROOT, write


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
        for file in package.rglob('*.py'):
            parts = file.relative_to(package).with_suffix('').parts
            edges[parts[0]] |= imported(file, parts) - {parts[0]}
        graph = networkx.DiGraph([(name, other) for name, others in edges.items() for other in others])
        cycles = [sorted(component) for component in networkx.strongly_connected_components(graph) if len(component) > 1]
        return dict(revision=revision, commit=commit, modules_at_the_root=len([*package.glob('*.py')]), files=len(files),
                    lines=sum(len(file.read_text().splitlines()) for file in files), longest=max(
                        (len(file.read_text().splitlines()), file.relative_to(folder).as_posix()) for file in files), cycles=cycles)


def imported(file: Path, parts: tuple[str, ...]) -> set[str]:
    """Return the modules at the root and packages that a module imports, in functions too, but not for type checkers."""
    found = set()
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
            found |= {name for name in names if name != '__init__'}
    return found


if __name__ == '__main__':
    sys.exit(main())
