"""Check every listed config, small, in every format that is installed, at other sizes and in a batch; docs/formats.md is made from it.

One process a config, with a limit; formats run one after another, since the exported program is shared.
    python benchmarks/verify_formats.py --out benchmarks/results/verify_formats.json
"""
from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from common import ROOT, names, quiet, write

FORMATS = ('onnx', 'torch_export', 'openvino')
DOC, RESULTS = ROOT / 'docs' / 'formats.md', ROOT / 'benchmarks' / 'results'


def main() -> int:
    args = parse()
    quiet()
    if args.one:
        print(json.dumps(run(args.one, args.outputs[0], args.formats)))
        return 0
    rows: list[dict[str, Any]] = []
    for outputs in args.outputs:
        for name in args.configs or names():
            for row in apart(name, outputs, args):
                rows.append(dict(config=name, outputs=outputs, **row))
                print(f"{name:<24}{outputs:<7}{row['format']:<14}{row['result']}", flush=True)
            write(args.out, rows, limit_s=args.limit, small=True)
    if args.out.resolve().parent == RESULTS:
        document(RESULTS)
    return 0 if all(row['result'] == 'pass' for row in rows) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--configs', nargs='*', help='names from configs/ (all)')
    parser.add_argument('--formats', nargs='+', default=FORMATS)
    parser.add_argument('--outputs', nargs='+', default=['raw', 'final'])
    parser.add_argument('--limit', type=int, default=600, help='seconds for a config, all formats together')
    parser.add_argument('--one', help=argparse.SUPPRESS)
    parser.add_argument('--out', type=Path, default=RESULTS / 'verify_formats.json')
    return parser.parse_args()


def apart(name: str, outputs: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the rows of one config, from a process of its own: a compiler may take the machine's memory, or for ever."""
    command = [sys.executable, '-W', 'ignore', __file__, '--one', name, '--outputs', outputs, '--formats', *args.formats]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=args.limit, check=True,
                              env={**os.environ, 'PYTHONPATH': str(ROOT)})
        return list(json.loads(done.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        reason = f'not made in {args.limit} s'
    except subprocess.CalledProcessError as exc:
        reason = f'died: {(exc.stderr.strip().splitlines() or [""])[-1][:200]}'
    return [dict(format=form, result=reason) for form in args.formats]


def run(name: str, outputs: str, formats: list[str]) -> list[dict[str, Any]]:
    from mmexport import Exporter
    from tests.tiny import seeded, tiny
    with tempfile.TemporaryDirectory() as folder:
        report, = Exporter(tiny(name, outputs=outputs, backends=formats), work_dir=folder, model=seeded(name)).run()
        rows = [dict(format=form, result=reason[:300]) for form, reason in report.failures.items()]
        for artifact, check in zip(report.artifacts, report.checks, strict=True):
            assert check.result
            errors = [row.max_rel for row in check.rows if row.stage == 'artifact vs eager' and row.max_rel is not None]
            rows.append(dict(format=artifact.backend, result=check.reason or 'pass', worst=max(errors, default=None),
                             bytes=artifact.manifest['bytes'], over_eager=check.over_eager))
        return rows


def document(results: Path) -> None:
    """Write the table of all ``verify_formats*.json`` between its marks in docs/formats.md, the last run of each row."""
    contents = [json.loads(place.read_text()) for place in sorted(results.glob('verify_formats*.json'))]
    rows = [row for content in contents for row in content['rows']]
    formats = list(dict.fromkeys(row['format'] for row in rows))
    lines = [f"| config | outputs | {' | '.join(formats)} |", f"| --- | --- | {' | '.join('---' for _ in formats)} |"]
    actual = {(row['config'], row['outputs'], row['format']): row for row in rows}
    for config, outputs in sorted(dict.fromkeys((row['config'], row['outputs']) for row in rows)):
        cells = [_cell(actual.get((config, outputs, form))) for form in formats]
        lines.append(f"| {config} | {outputs} | {' | '.join(cells)} |")
    lines.append('')
    lines += [f"* torch {content['versions']['torch']}, {content['cores']} cores, commit {content['commit']}: `{content['command']}`"
              for content in contents]
    text = re.sub(r'<!-- table -->.*?<!-- /table -->', lambda _: '<!-- table -->\n' + '\n'.join(lines) + '\n<!-- /table -->',
                  DOC.read_text(), flags=re.DOTALL)
    DOC.write_text(text)


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return 'not run'
    if row['result'] != 'pass':
        return row['result'].replace('|', '/')[:120]
    return 'pass' if row['worst'] is None else f"pass, {row['worst']:.0e}"


if __name__ == '__main__':
    sys.exit(main())
