"""Fill the generated parts of README and docs from recorded results: python benchmarks/readme.py. Nothing in them is typed."""
from __future__ import annotations

import json
import re
from typing import Any

from common import ROOT
from readme_detectors import parts

RESULTS = ROOT / 'benchmarks' / 'results'
# Of the demo's output, that the README shows.
LAST_LINES = 8


def main() -> None:
    results = dict(table=table, speed=speed, checking=checking, decisions=decisions, **parts(_machine))
    for page, blocks in (('README.md', dict(demo=demo)), ('docs/results.md', results)):
        text = (ROOT / page).read_text()
        for name, part in blocks.items():
            block = f'<!-- {name} -->\n{part()}\n<!-- /{name} -->'
            text = re.sub(rf'<!-- {name} -->.*?<!-- /{name} -->', lambda _, block=block: block, text, flags=re.DOTALL)
        (ROOT / page).write_text(text)


def demo() -> str:
    """Return the command of the demo and the last lines that it prints, from the formats to the verdict."""
    place = RESULTS / 'demo.txt'
    if not place.is_file():
        return 'not run'
    lines = place.read_text().splitlines()
    return '\n'.join(f'    {line}'.rstrip() for line in [*lines[:1], '...', *lines[-LAST_LINES:]])


def checking() -> str:
    place = RESULTS / 'before_after.json'
    content = json.loads(place.read_text())
    lines = ['| config | revision | whole, s | checking, s | checking, ratio |', '| --- | --- | --- | --- | --- |']
    first: dict[str, float] = {}
    for row in content['rows']:
        ratio = row['checking_s'] / first.setdefault(row['config'], row['checking_s'])
        revision = content['before'] if row['which'] == 'before' else content['commit']
        lines.append(f"| {row['config']} | {revision} | {row['total_s']:.0f} | {row['checking_s']:.0f} | {ratio:.2f} |")
    return '\n'.join([*lines, '', f'`{place.name}`: {_machine(content)}'])


def decisions() -> str:
    lines = ['| config | format | raw, s | final over raw (quartiles) | run |', '| --- | --- | --- | --- | --- |']
    rows: dict[tuple[str, str], str] = {}
    where = []
    for number, place in enumerate(sorted(RESULTS.glob('final_cost*.json')), 1):
        content = json.loads(place.read_text())
        for row in content['rows']:
            paired = row['final_over_raw']
            rows[row['config'], row['backend']] = (
                f"| {row['config']} | {row['backend']} | {row['seconds']['raw']:.2f} | {paired['median']:.3f} "
                f"({paired['lower quartile']:.3f} to {paired['upper quartile']:.3f}) | {number} |")
        where.append(f"Run {number}, `{place.name}`: {content['rounds']} interleaved rounds, {content['clock']} time, {_machine(content)}")
    return '\n'.join([*lines, *(rows[key] for key in sorted(rows)), '', '\n\n'.join(where)])


def table() -> str:
    lines = ['| config | outputs | traced at | largest error | floor | result | run |', '| --- | --- | --- | --- | --- | --- | --- |']
    rows: dict[tuple[str, str, bool], str] = {}
    where = []
    for number, place in enumerate(sorted(RESULTS.glob('verify_configs*.json')), 1):
        content = json.loads(place.read_text())
        # A config that was run again has its last run shown.
        rows.update({(row['config'], row['outputs'], bool(content.get('reverse'))): _row(row, content, number) for row in content['rows']})
        where.append(f"Run {number}, `{place.name}`: {_machine(content)}")
    return '\n'.join([*lines, *(rows[key] for key in sorted(rows)), '', '\n\n'.join(where)]) if where else 'not run'


def _row(row: dict[str, Any], content: dict[str, Any], run: int) -> str:
    if 'worst' not in row:
        return f"| {row['config']} | {row['outputs']} | | | | {row['reason']} | {run} |"
    worst = ', '.join(f'{name} {value:.1e}' for name, value in row['worst'].items())
    floor = max(row['floors'].values(), default=0.0)
    size = '2x250x333' if content.get('reverse') else 'x'.join(map(str, row['size']))
    result = 'pass' if row['passed'] else row['reason']
    return f"| {row['config']} | {row['outputs']} | {size} | {worst} | {floor:.1%} | {result} | {run} |"


def speed() -> str:
    lines = ['| config | size | over eager: CPU time, 1 thread | wall time, all threads | over the plain trace (CPU time) | run |',
             '| --- | --- | --- | --- | --- | --- |']
    rows: dict[tuple[str, str], str] = {}
    where = []
    for number, place in enumerate(sorted(RESULTS.glob('latency*.json')), 1):
        content = json.loads(place.read_text())
        size = 'x'.join(map(str, content['size']))
        for row in content['rows']:
            cpu, wall = row['cpu_ratio'], row['wall_ratio']
            paired = row['cpu_artifact_over_plain']
            plain = 'does not run' if paired is None else (
                f"{paired['median']:.2f} ({paired['lower quartile']:.2f} to {paired['upper quartile']:.2f})")
            ours = f"{cpu['artifact']:.2f} | {wall['artifact']:.2f}"
            rows[row['config'], size] = f"| {row['config']} | {size} | {ours} | {plain} | {number} |"
        where.append(f"Run {number}, `{place.name}`: {content['rounds']} interleaved rounds, {_machine(content)}")
    lines += [rows[key] for key in sorted(rows)]
    head = 'Time of the artifact, raw outputs, batch 1, over that of another in the same round; median of rounds (and quartiles):'
    return '\n'.join([head, '', *lines, '', '\n\n'.join(where)]) if where else 'not run'


def _machine(content: dict[str, Any]) -> str:
    versions = content['versions']
    machine = f"{content['cores']} cores ({content['cpu']})"
    return f"torch {versions['torch']}, Python {versions['python']}, {machine}, commit {content['commit']}"


if __name__ == '__main__':
    main()
