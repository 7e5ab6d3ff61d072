"""Export and verify every config at its full size, with seeded weights, in a process each; the README's table comes from here.

Traced at the config's native size and checked at 251x333, at another aspect and at batch 3; with --reverse traced at 2x250x333 and
checked at the native size.
    python benchmarks/verify_configs.py --out benchmarks/results/verify_configs.json
"""
from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import CONFIGS, names, quiet, tool, write


def main() -> int:
    args = parse()
    quiet()
    rows: list[dict[str, Any]] = []
    for name in args.configs or names():
        for outputs, row in verify(name, args).items():
            rows.append(dict(config=name, outputs=outputs, **row))
            print(f"{name:<24}{outputs:<7}{'pass' if row['passed'] else 'FAIL'}  {row.get('worst') or row.get('reason')}", flush=True)
        write(args.out, rows, reverse=args.reverse, size=args.size)
    return 0 if all(row['passed'] for row in rows) else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--configs', nargs='*', help='names from configs/ (all)')
    parser.add_argument('--outputs', nargs='+', default=['final', 'raw'])
    parser.add_argument('--size', nargs=2, type=int, help='traced size instead of the native one')
    parser.add_argument('--reverse', action='store_true')
    parser.add_argument('--device', default='cpu')
    parser.add_argument('--out', type=Path, required=True)
    return parser.parse_args()


def verify(name: str, args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    config = CONFIGS / f'{name}.py'
    with tempfile.TemporaryDirectory() as folder:
        checkpoint, work_dir = Path(folder) / 'c.pth', Path(folder) / 'w'
        started = time.perf_counter()
        made = tool('make_checkpoint', config, checkpoint)
        if made.returncode:
            return {'all': dict(passed=False, reason=made.stderr.strip().splitlines()[-1])}
        size = args.size or native(config)
        options = ['--shape', *size]
        if args.reverse:
            options = ['--shape', 250, 333, '--batch', 2, '--cfg-options', f'export.verify.shapes=[({size[0]},{size[1]})]',
                       'export.verify.batch=1']
        done = tool('export', config, checkpoint, '--work-dir', work_dir, '--device', args.device, '--quiet', '--no-samples',
                    '--outputs', *args.outputs, *options)
        seconds = time.perf_counter() - started
        return {outputs: summary(work_dir / outputs if len(args.outputs) > 1 else work_dir, done.stderr, seconds, list(size))
                for outputs in args.outputs}


def native(config: Path) -> tuple[int, int]:
    from mmexport.inputs.shapes import traced_shape
    from mmexport.model.config import export_section, load_config
    cfg = load_config(config)
    return traced_shape(cfg, export_section(cfg))[2:]


def summary(work_dir: Path, stderr: str, seconds: float, size: list[int]) -> dict[str, Any]:
    """Return the largest error of each output over all samples, against eager, and what was checked."""
    place = next((path for path in (work_dir / 'report.json', work_dir / 'failed' / 'report.json') if path.is_file()), None)
    if place is None:
        return dict(passed=False, reason=(stderr.strip() or 'no report').splitlines()[-1])
    report = json.loads(place.read_text())
    artifact = report['artifacts'][0]
    rows = [row for row in artifact['result']['rows'] if row['stage'] == 'artifact vs eager']
    worst: dict[str, float] = {}
    for row in rows:
        error = row['max_rel'] if row['max_rel'] is not None else 1 - row['metrics'].get('pixel_agreement', 0.0)
        worst[row['output']] = max(worst.get(row['output'], 0.0), error)
    floors = {row['output']: row['floor'] for row in rows}
    return dict(passed=report['passed'], reason=artifact['reason'], worst=worst, floors=floors, size=size,
                samples=sorted({row['sample'] for row in rows}), fused=artifact['manifest']['torchscript']['fused'],
                seconds=round(seconds, 1), steps=report['seconds'])


if __name__ == '__main__':
    sys.exit(main())
