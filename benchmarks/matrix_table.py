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
        details = across(environments) + detectors(environments) + failures(environments) if page.startswith('docs') else []
        lines = table(environments) + details
        text = '<!-- matrix -->\n' + '\n'.join(lines) + '\n<!-- /matrix -->'
        place.write_text(MARK.sub(lambda match, text=text: text, place.read_text()))


def summary(environment: dict[str, Any]) -> dict[str, Any]:
    """Return how many models passed, of how many, by format."""
    return dict(torch=environment['torch'], numpy=environment['numpy'], python=environment['python'], formats=counts(environment))


def counts(environment: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return by format how many models passed, of how many that were tried; a row that ended without a result passed in none."""
    tried = {key: row for key, row in environment['rows'].items() if not key.startswith(('files', 'fast tests', 'detector '))}
    results = [(name, result) for row in tried.values() for name, result in row.get('formats', {}).items()
               if not result.startswith('not available')]
    names = {name for name, _ in results}
    results += [(name, row['reason']) for key, row in tried.items() if row.get('reason') for name in names
                if (name == 'aotinductor') == key.endswith(' aotinductor')]
    return {name: (sum(result.startswith('PASS') for each, result in results if each == name), sum(each == name for each, _ in results))
            for name in FORMATS if name in names}


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
        name = named({**environment, 'python': '3.11'})
        lines.append('| ' + ' | '.join([name, environment['numpy'], environment['python'], *cells, outcome, minutes]) + ' |')
    return lines


def across(environments: list[dict[str, Any]]) -> list[str]:
    """Return a Markdown table: of the files that each environment wrote, those that each other loads and verifies."""
    results = {each['name']: each['rows']['files'].get('formats', {}) for each in environments if each['rows'].get('files')}
    writers = [each['name'] for each in environments if any(key.startswith(f"{each['name']} ") for row in results.values() for key in row)]
    if not writers:
        return []
    lines = ['', 'Files of SegFormer-B0 and MaskFormer-R50, small, in each format but AOTInductor, written by the environment of the',
             'column and verified by that of the row. Refused: a torch.export file of a newer torch, and the message names both versions.',
             'Others that do not pass are below. A dash: the files of that column were not there when the row was run. Environments',
             'take 2 to 8 GB each, and are removed after their rows.', '',
             f"| verified by | {' | '.join(writers)} |", '|---' * (len(writers) + 1) + '|']
    for reader, row in results.items():
        cells = []
        for writer in writers:
            outcomes = [outcome for key, outcome in row.items() if key.startswith(f'{writer} ')]
            turned_away = sum(refused(each) for each in outcomes)
            cells.append((f"{sum(each == 'PASS' for each in outcomes)} of {len(outcomes)}" if outcomes else '-')
                         + (f', {turned_away} refused' if turned_away else ''))
        lines.append(f"| {reader} | {' | '.join(cells)} |")
    return lines


def detectors(environments: list[dict[str, Any]]) -> list[str]:
    """Return a Markdown table: what became of small detectors."""
    rows = {each['name']: {key.split()[1]: row for key, row in each['rows'].items() if key.startswith('detector ')}
            for each in environments}
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    if not names:
        return []
    lines = ['', 'Detectors, small, in TorchScript and ONNX. A dash: not run.', '', f"| torch | {' | '.join(names)} |",
             '|---' * (len(names) + 1) + '|']
    for environment in environments:
        if row := rows[environment['name']]:
            results = [row.get(name, dict(formats={'none': '-'})).get('formats', {'none': 'no result'}).values() for name in names]
            cells = [', '.join(dict.fromkeys(re.split(r':| \(', result)[0] for result in each)) for each in results]
            lines.append(f"| {named(environment)} | {' | '.join(cells)} |")
    return lines


def named(environment: dict[str, Any]) -> str:
    """Return the version of torch, with the packages that differ from the lock file."""
    others = ', '.join(package.replace('==', ' ') for package in environment['packages'])
    python = '' if environment['python'] == '3.11' else f", Python {environment['python']}"
    return environment['torch'] + python + (f' with {others}' if others else '')


def refused(result: str) -> bool:
    """Return whether a file of another torch was refused in words."""
    return result.startswith('exit 2') and 'was written with torch' in result


def failures(environments: list[dict[str, Any]]) -> list[str]:
    """Return a line for each model that did not pass, and for each row without a result."""
    lines = []
    for environment in environments:
        for name, row in environment['rows'].items():
            if row.get('failed'):
                tests = ', '.join(test.removeprefix('FAILED ') for test in row['failed'])
                lines.append(f"* torch {named(environment)}, {name}: {row['tests'].partition(' in ')[0]}: {tests}")
            if row.get('reason'):
                lines.append(f"* torch {named(environment)}, {name}: {row['reason']}")
            what = 'loads the file of' if name == 'files' else f'{name},'
            kinds: dict[str, list[str]] = {}
            for kind, result in row.get('formats', {}).items():
                if not result.startswith(('PASS', 'not available')) and not refused(result):
                    kinds.setdefault(result, []).append(kind)
            lines += [f"* torch {named(environment)}, {what} {', '.join(same)}: {result}" for result, same in kinds.items()]
    return ['', 'Not passed:', '', *lines] if lines else []


if __name__ == '__main__':
    main()
