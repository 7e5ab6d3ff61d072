"""Time the default command of two revisions, in turn, on the same checkpoints: seconds of the whole and of its steps.

    python benchmarks/before_after.py --before e007a6c --out benchmarks/results/before_after.json
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import CONFIGS, ROOT, quiet, tool, write
from rounds import Others

# Kinds of steps that any export has. All other time is taken for checking.
EXPORTING = ('set-up', 'lowering')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--before', required=True, help='a revision of git; what is checked out is the other one')
    parser.add_argument('--configs', nargs='*', default=['mask2former_r50', 'pspnet'])
    parser.add_argument('--out', type=Path, required=True)
    args = parser.parse_args()
    quiet()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / 'before'
        subprocess.run(['git', 'clone', '-q', str(ROOT), str(before)], check=True)
        subprocess.run(['git', 'checkout', '-q', args.before], cwd=before, check=True)
        for name in args.configs:
            checkpoint = Path(folder) / f'{name}.pth'
            tool('make_checkpoint', CONFIGS / f'{name}.py', checkpoint).check_returncode()
            for which, root in (('before', before), ('after', ROOT)):
                rows.append(dict(config=name, which=which, **timed(root, name, checkpoint, Path(folder) / f'{which}_{name}')))
                write(args.out, rows, before=args.before)
                print(f"{name:<20}{which:<8}{rows[-1]['total_s']:>7.0f} s, of which checking {rows[-1]['checking_s']:.0f} s", flush=True)


def timed(root: Path, name: str, checkpoint: Path, work_dir: Path) -> dict[str, Any]:
    others, started = Others(), time.perf_counter()
    done = subprocess.run([sys.executable, '-W', 'ignore', str(root / 'tools' / 'export.py'), str(root / 'configs' / f'{name}.py'),
                           str(checkpoint), '--work-dir', str(work_dir)], capture_output=True, text=True, check=False,
                          env={**os.environ, 'PYTHONPATH': str(root)})
    total, busy = time.perf_counter() - started, others.load()
    if done.returncode:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    report = json.loads((work_dir / 'report.json').read_text())
    seconds: dict[str, float] = report['seconds']
    inputs = sorted({row['sample'] for row in report['artifacts'][0]['result']['rows']})
    if 'seconds_by_kind' not in report:
        raise SystemExit(f'{root} writes no seconds_by_kind into its report: compare with a later revision')
    exporting = sum(report['seconds_by_kind'].get(kind, 0.0) for kind in EXPORTING)
    return dict(total_s=total, checking_s=total - exporting, seconds=seconds, inputs=inputs, others=busy)


if __name__ == '__main__':
    main()
