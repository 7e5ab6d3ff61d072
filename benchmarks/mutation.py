"""Count what ``mutmut run`` left in mutants/: by module the killed and the survivors, with what each changed and why it may stay.

    python benchmarks/mutation.py --out benchmarks/results/mutation.json

A mutant that a test of another folder would kill counts as a survivor here. Of one that nothing can tell from the program, or only a
machine with a GPU, `mutation_survivors.json` says why.
"""
from __future__ import annotations

import argparse
import ast
import difflib
import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from common import ROOT, quiet, write

# Suspicious is what mutmut calls an exit code that it does not know: the tests ended in a way of their own, and did not pass.
KILLED = {'killed', 'timeout', 'segfault', 'suspicious', 'caught by type check'}
REASONS = Path(__file__).with_name('mutation_survivors.json')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--mutants', type=Path, default=ROOT / 'mutants')
    parser.add_argument('--out', type=Path, required=True)
    args = parser.parse_args()
    quiet()
    rows = [row for place in sorted(args.mutants.rglob('*.py.meta')) if (row := counted(place, args.mutants))]
    total = sum(row['mutants'] for row in rows)
    killed = sum(row['killed'] for row in rows)
    left = [survivor for row in rows for survivor in row['survivors']]
    open_ones = [survivor for survivor in left if not survivor['why']]
    write(args.out, rows, mutants=total, killed=killed, explained=len(left) - len(open_ones), unexplained=len(open_ones),
          score=round(killed / total, 3) if total else None)
    for row in rows:
        print(f"{row['module']:<44}{row['killed']:>5} of {row['mutants']:>5} killed")
    for survivor in open_ones:
        print(f"{survivor['name']}\n  {survivor['change']}")
    print(f'{killed} of {total} killed ({killed / max(total, 1):.1%}); of {len(left)} survivors {len(open_ones)} are not explained')


def counted(place: Path, root: Path) -> dict[str, Any] | None:
    """Return the row of one module; None where it has no mutant."""
    from mutmut.stats import status_by_exit_code
    codes: dict[str, int | None] = json.loads(place.read_text())['exit_code_by_key']
    if not codes:
        return None
    states = Counter(status_by_exit_code[code] for code in codes.values())
    source = place.with_suffix('')
    survivors = [dict(name=name, state=status_by_exit_code[code], change=(change := change_of(source, name)), why=why(name, change))
                 for name, code in sorted(codes.items()) if status_by_exit_code[code] not in KILLED | {'not checked'}]
    return dict(module=str(source.relative_to(root)), mutants=len(codes) - states['not checked'],
                killed=sum(states[state] for state in KILLED), states=dict(states), survivors=survivors)


def change_of(source: Path, name: str) -> str:
    """Return the lines that the mutant `name` took out and put in."""
    function = name.rpartition('.')[2]
    functions = functions_of(source)
    lines = difflib.unified_diff(functions[function.rpartition('__mutmut_')[0] + '__mutmut_orig'], functions[function], n=0, lineterm='')
    return ' '.join(f'{line[0]} {line[1:].strip()}' for line in lines if line[0] in '+-' and line[:3] not in ('+++', '---'))


@cache
def functions_of(source: Path) -> dict[str, list[str]]:
    """Return by name the lines below the signature of each function, whose own name is that of the mutant."""
    text = source.read_text()
    lines = text.splitlines()
    return {node.name: re.split(r'__mutmut_\w+', lines[node.lineno - 1], maxsplit=1)[-1:] + lines[node.lineno:node.end_lineno]
            for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


@cache
def reasons() -> list[dict[str, Any]]:
    actual: list[dict[str, Any]] = json.loads(REASONS.read_text())
    return actual


def why(name: str, change: str) -> str | None:
    """Return why a survivor is none that a test should kill; None where nobody has said so."""
    for reason in reasons():
        if any(re.search(pattern, f'{name}: {change}') for pattern in reason['changes']):
            return str(reason['why'])
    return None


if __name__ == '__main__':
    main()
