"""Fill the README's generated parts from recorded results: python benchmarks/readme.py. Nothing in them is typed."""
from __future__ import annotations

import json
import re
from typing import Any

from common import ROOT

RESULTS = ROOT / 'benchmarks' / 'results'


def main() -> None:
    readme = ROOT / 'README.md'
    text = readme.read_text()
    for name, part in (('demo', demo()), ('table', table()), ('speed', speed())):
        text = re.sub(rf'<!-- {name} -->.*?<!-- /{name} -->', lambda _, n=name, p=part: f'<!-- {n} -->\n{p}\n<!-- /{n} -->', text,
                      flags=re.DOTALL)
    readme.write_text(text)


def demo() -> str:
    place = RESULTS / 'demo.txt'
    return ''.join(f'    {line}'.rstrip() + '\n' for line in place.read_text().splitlines()) if place.is_file() else 'not run'


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
