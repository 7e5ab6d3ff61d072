"""Fill the README's generated parts from recorded results: python benchmarks/readme.py. Nothing in them is typed."""
from __future__ import annotations

import json
import re
from collections.abc import Iterator
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
    lines = ['| config | outputs | traced at | largest error | floor | result |', '| --- | --- | --- | --- | --- | --- |']
    where = []
    for place in sorted(RESULTS.glob('verify_configs*.json')):
        content = json.loads(place.read_text())
        lines += list(_rows(content))
        where.append(f"`{place.name}`: {_machine(content)}")
    return '\n'.join([*lines, '', *where]) if where else 'not run'


def _rows(content: dict[str, Any]) -> Iterator[str]:
    for row in content['rows']:
        if 'worst' not in row:
            yield f"| {row['config']} | {row['outputs']} | | | | {row['reason']} |"
            continue
        worst = ', '.join(f'{name} {value:.1e}' for name, value in row['worst'].items())
        floor = max(row['floors'].values(), default=0.0)
        size = '2x250x333' if content.get('reverse') else 'x'.join(map(str, row['size']))
        yield f"| {row['config']} | {row['outputs']} | {size} | {worst} | {floor:.1%} | {'pass' if row['passed'] else row['reason']} |"


def speed() -> str:
    lines = ['| config | size | CPU time, 1 thread | wall time, all threads | plain trace (CPU time) |', '| --- | --- | --- | --- | --- |']
    where = []
    for place in sorted(RESULTS.glob('latency*.json')):
        content = json.loads(place.read_text())
        for row in content['rows']:
            cpu, wall = row['cpu_ratio'], row['wall_ratio']
            plain = f"{cpu['plain trace']:.2f}" if 'plain trace' in cpu else 'does not run'
            lines.append(f"| {row['config']} | {'x'.join(map(str, content['size']))} | {cpu['artifact']:.2f} | {wall['artifact']:.2f} | "
                         f"{plain} |")
        where.append(f"`{place.name}`: {content['rounds']} interleaved rounds, {_machine(content)}")
    head = 'Time of the artifact over that of eager, raw outputs, batch 1, median of rounds:'
    return '\n'.join([head, '', *lines, '', *where]) if where else 'not run'


def _machine(content: dict[str, Any]) -> str:
    versions = content['versions']
    machine = f"{content['cores']} cores ({content['cpu']})"
    return f"torch {versions['torch']}, Python {versions['python']}, {machine}, commit {content['commit']}"


if __name__ == '__main__':
    main()
