"""Write the table of versions in README.md and docs/status.md, and mmexport/compat/tried.json, from the results of matrix.py.

    python benchmarks/matrix_table.py
"""
from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / 'benchmarks' / 'results' / 'matrix.json'
FORMATS = ('torchscript', 'onnx', 'openvino', 'torch_export', 'aotinductor')
PAGES = ('README.md', 'docs/status.md')
MARK = re.compile(r'<!-- matrix -->\n.*?<!-- /matrix -->', re.S)


def main() -> None:
    document(json.loads(RESULTS.read_text())['rows'])


def document(environments: list[dict[str, Any]]) -> None:
    """Write all three files; the page of details has a line for each failure."""
    summaries = [summary(environment) for environment in environments if environment['rows'] and not environment['packages']]
    (ROOT / 'mmexport' / 'compat' / 'tried.json').write_text(json.dumps(summaries, indent=1) + '\n')
    for page in PAGES:
        place = ROOT / page
        lines = table(environments) + (failures(environments) if page.startswith('docs') else [])
        text = '<!-- matrix -->\n' + '\n'.join(lines) + '\n<!-- /matrix -->'
        place.write_text(MARK.sub(lambda match, text=text: text, place.read_text()))


def summary(environment: dict[str, Any]) -> dict[str, Any]:
    """Return how many models passed, of how many, by format."""
    return dict(torch=environment['torch'], numpy=environment['numpy'], python=environment['python'], formats=counts(environment))


def counts(environment: dict[str, Any]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for row in [row for key, row in environment['rows'].items() if key != 'files']:
        for name, result in row.get('formats', {}).items():
            if not result.startswith('not available'):
                passed, total = found.get(name, (0, 0))
                found[name] = passed + result.startswith('PASS'), total + 1
    return {name: found[name] for name in FORMATS if name in found}


def table(environments: list[dict[str, Any]]) -> list[str]:
    """Return the rows of a Markdown table: models that passed, of those tried."""
    lines = ['| torch | numpy | Python | ' + ' | '.join(FORMATS) + ' | fast tests | minutes |', '|---' * (len(FORMATS) + 5) + '|']
    for environment in environments:
        rows, results = environment['rows'], counts(environment)
        absent = 'not available' if rows else 'not run'
        cells = [f'{results[name][0]} of {results[name][1]}' if name in results else absent for name in FORMATS]
        tests = rows.get('fast tests', {})
        outcome = tests.get('tests') or tests.get('reason') or environment.get('problem') or 'not run'
        minutes = str(round(sum(row['seconds'] for row in rows.values()) / 60)) if rows else '-'
        outcome = re.sub(', [0-9]+ warnings?.*| in [0-9.]+s.*', '', outcome)
        lines.append('| ' + ' | '.join([named(environment), environment['numpy'], environment['python'], *cells, outcome, minutes]) + ' |')
    return lines


def named(environment: dict[str, Any]) -> str:
    """Return the version of torch, with the packages that differ from the lock file."""
    others = ', '.join(package.replace('==', ' ') for package in environment['packages'])
    return environment['torch'] + (f' with {others}' if others else '')


def failures(environments: list[dict[str, Any]]) -> list[str]:
    """Return a line for each model that did not pass, and for each row without a result."""
    lines = []
    for environment in environments:
        for name, row in environment['rows'].items():
            if row.get('reason'):
                lines.append(f"* torch {named(environment)}, {name}: {row['reason']}")
            what = 'loads the file of' if name == 'files' else f'{name},'
            kinds: dict[str, list[str]] = {}
            for kind, result in row.get('formats', {}).items():
                if not result.startswith(('PASS', 'not available')):
                    kinds.setdefault(result, []).append(kind)
            lines += [f"* torch {named(environment)}, {what} {', '.join(same)}: {result}" for result, same in kinds.items()]
    return ['', 'Not passed:', '', *lines] if lines else []


if __name__ == '__main__':
    main()
