"""Count what ``mutmut run`` left in mutants/: by module the killed and the survivors, with their names.

    python benchmarks/mutation.py --out benchmarks/results/mutation.json

A mutant that a test of another folder would kill counts as a survivor here; `mutmut show NAME` prints the change.
"""
from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from common import ROOT, quiet, write

KILLED = {'killed', 'timeout', 'segfault', 'caught by type check'}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--mutants', type=Path, default=ROOT / 'mutants')
    parser.add_argument('--out', type=Path, required=True)
    args = parser.parse_args()
    quiet()
    rows = [row for place in sorted(args.mutants.rglob('*.py.meta')) if (row := counted(place, args.mutants))]
    total = sum(row['mutants'] for row in rows)
    killed = sum(row['killed'] for row in rows)
    write(args.out, rows, mutants=total, killed=killed, score=round(killed / total, 3) if total else None)
    for row in rows:
        print(f"{row['module']:<44}{row['killed']:>5} of {row['mutants']:>5} killed")
    print(f'{killed} of {total} killed ({killed / max(total, 1):.1%})')


def counted(place: Path, root: Path) -> dict[str, Any] | None:
    """The row of one module; None where it has no mutant."""
    from mutmut.stats import status_by_exit_code
    codes: dict[str, int | None] = json.loads(place.read_text())['exit_code_by_key']
    if not codes:
        return None
    states = Counter(status_by_exit_code[code] for code in codes.values())
    survivors = sorted(name for name, code in codes.items() if status_by_exit_code[code] not in KILLED | {'not checked'})
    return dict(module=str(place.relative_to(root)).removesuffix('.meta'), mutants=len(codes) - states['not checked'],
                killed=sum(states[state] for state in KILLED), states=dict(states), survivors=survivors)


if __name__ == '__main__':
    main()
