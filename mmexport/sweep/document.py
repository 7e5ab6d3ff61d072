"""Write ``zoo.json`` and ``zoo.md`` from the store's rows."""
from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
HEAD = '''# Model zoo

Written by `tools/sweep.py`. Of each folder of a package's configs the smallest model, and every kind of backbone; seeded weights
(`make_checkpoint`); each exported as `tools/export.py --outputs final raw` does it ({shape}), and each file checked in a fresh
process against the unpatched eager model on that command's own inputs. `final` is the largest share of pixels that differ (or the
largest error of scale, where the outputs are no label maps), `raw` the largest error of an output's scale, over all inputs; `sizes` are
the heights that were tried; `/eager` is the time of a call of `raw` over eager's, one thread, beside other jobs: do not
use it to compare speeds.
'''


def write(rows: Sequence[Row], json_place: Path, md_place: Path) -> None:
    json_place.write_text(json.dumps(rows, indent=1) + '\n')
    md_place.write_text('\n'.join(_lines(rows)) + '\n')


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    shapes = {tuple(row['shape']) if row['shape'] else None for row in rows}
    sizes = [f"`--shape {shape[0]} {shape[1]}`, or the model's own size where it takes one size only" if shape else 'its default shape'
             for shape in sorted(shapes, key=str)]
    title, _, body = HEAD.partition('\n\n')
    yield f'{title}\n\n' + textwrap.fill(body.format(shape=' and '.join(sizes)), 140) + '\n'
    formats = sorted({row['backend'] for row in rows}, key=lambda name: (name != 'torchscript', name))
    yield '| format | configs | pass | fail | folders | all of the folder pass |'
    yield '| --- | --- | --- | --- | --- | --- |'
    for name in formats:
        format_rows = [row for row in rows if row['backend'] == name]
        passed = sum(row['passed'] for row in format_rows)
        folders = {_folder(row) for row in format_rows}
        broken = {_folder(row) for row in format_rows if not row['passed']}
        yield f'| {name} | {len(format_rows)} | {passed} | {len(format_rows) - passed} | {len(folders)} | {len(folders - broken)} |'
    yield ''
    several = len({row['under']['commit'] for row in rows}) > 1
    yield '| config | task | format | result | final | raw | sizes | inputs | /eager | MB |' + (' commit |' if several else '')
    yield '| --- ' * 10 + '|' + (' --- |' if several else '')
    for row in sorted(rows, key=lambda row: (row['config'], formats.index(row['backend']))):
        yield _line(row) + (f" {row['under']['commit']} |" if several else '')
    yield ''
    failed = [row for row in rows if not row['passed']]
    if failed:
        yield '## What does not pass'
        yield ''
        for row in sorted(failed, key=lambda row: (row['config'], formats.index(row['backend']))):
            yield f"* {row['config']}, {row['backend']}: {row['reason']}"
            yield from (f'  {line.strip()}' for line in row.get('diagnosis', ()) if line.strip())
        yield ''
    for under in dict.fromkeys(json.dumps(row['under'], sort_keys=True) for row in rows):
        content = json.loads(under)
        yield f"* commit {content.pop('commit')}: " + ', '.join(f'{name} {version}' for name, version in content.items())


def _folder(row: Row) -> str:
    return str(row['config']).rpartition('/')[0]


def _line(row: Row) -> str:
    final, raw = row.get('final') or {}, row.get('raw') or {}
    cells = [row['config'], row.get('task') or '', row['backend'],
             'pass' if row['passed'] else str(row['reason']).replace('|', '/').replace('\n', ' ')[:160],
             f"{final['differs']:.2%}" if final.get('differs') is not None else _figure(final.get('worst')), _figure(raw.get('worst')),
             _sizes(row), str(row.get('inputs') or ''), f"{raw['over_eager']:.2f}" if raw.get('over_eager') else '',
             f"{raw['bytes'] / 1e6:.0f}" if raw.get('bytes') else '']
    return f"| {' | '.join(cells)} |"


def _sizes(row: Row) -> str:
    """Return the heights that were tried, and those that the model takes."""
    if not row.get('traced'):
        return ''
    if row['fixed']:
        return 'x'.join(map(str, row['traced'])) + ' only'
    multiple = f", multiples of {row['multiple_of']}" if row['multiple_of'] > 1 else ''
    return f"{row['smallest'][1]} to {row['largest'][1]}{multiple}"


def _figure(error: float | None) -> str:
    return '' if error is None else f'{error:.0e}'
