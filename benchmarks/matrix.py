"""Run the listed configs, trained checkpoints and fast tests in environments of other versions, one environment at a time.

Each environment is a virtual environment in a temporary folder, removed afterwards (about 6 GB: torch's wheels bring CUDA, and run on
a CPU). Goes on where it was interrupted: a row that is in the results file is run again with --again only.
    python benchmarks/matrix.py --out benchmarks/results/matrix.json
    python benchmarks/matrix.py --environments torch-2.4.1 --again
    python benchmarks/matrix.py --rows files --again --keep
The last one lets every environment load the files of those that come after it.
"""
from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common import COMMIT, ROOT, names, write
from matrix_env import ENVIRONMENTS, Environment, install, versions
from matrix_row import DETECTORS

# Of `make test-fast` what does not depend on recorded figures, and the patches against upstream.
FAST = ('tests/checker', 'tests/model', 'tests/utils', 'tests/compat', 'tests/inputs', 'tests/patching', 'tests/ops', 'tests/patches',
        'tests/branches/test_tables.py', 'tests/branches/test_recorder.py')
TRAINED = ('cracks_sigmoid', 'nuclei_unet', 'shapes_slide')
WHOLE = 'mask2former_r50 256x256'
# Where detectors are tried too.
WITH_DETECTORS = ('torch-2.1.2', 'torch-2.8.0')


def main() -> int:
    args = parse()
    earlier = {row['name']: row for row in json.loads(args.out.read_text())['rows']} if args.out.is_file() else {}
    # Those that were not run have no rows, which the table says.
    results = [still_valid(earlier.get(environment.name), environment) for environment in ENVIRONMENTS]
    for environment, entry in zip(ENVIRONMENTS, results, strict=True):
        if args.environments and environment.name not in args.environments:
            continue
        todo = [row for row in args.rows or rows(environment.name) if args.again or row not in entry['rows']]
        if not todo:
            continue
        folder = args.folder / environment.name
        started = time.perf_counter()
        problem = None if (folder / 'bin' / 'python').is_file() else install(environment, folder)
        entry.update(install_s=round(time.perf_counter() - started), problem=problem)
        if problem is None:
            entry['versions'] = versions(folder)
            for row in todo:
                entry['rows'][row] = {**run(row, folder, args.limit), 'commit': COMMIT}
                print(environment.name, row, json.dumps(entry['rows'][row])[:300], flush=True)
                write(args.out, results, limit_s=args.limit)
        write(args.out, results, limit_s=args.limit)
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if args.check and any(not passed(row) for row in results if not args.environments or row['name'] in args.environments) else 0


def still_valid(entry: dict[str, Any] | None, environment: Environment) -> dict[str, Any]:
    """Return the earlier results of an environment; none where its packages were others."""
    present = json.loads(json.dumps(asdict(environment)))
    if entry is not None and all(entry[key] == value for key, value in present.items()):
        return entry
    return dict(present, rows={}, problem=None)


def passed(entry: dict[str, Any]) -> bool:
    """Return whether every row of an environment has a result, and TorchScript and ONNX pass in it."""
    return entry['problem'] is None and all(
        not row.get('reason') and not row.get('failed')
        and all(result.startswith('PASS') for name, result in row.get('formats', {}).items() if name in ('torchscript', 'onnx'))
        for row in entry['rows'].values())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--environments', nargs='*', help='names from ENVIRONMENTS (all)')
    parser.add_argument('--rows', nargs='*', help='names of rows (all)')
    parser.add_argument('--limit', type=int, default=900, help='seconds for a row')
    parser.add_argument('--folder', type=Path, default=ROOT / 'work_dirs' / 'matrix', help='where environments are made')
    parser.add_argument('--keep', action='store_true', help='leave the environments there')
    parser.add_argument('--again', action='store_true', help='run rows again that have a result')
    parser.add_argument('--check', action='store_true', help='exit with 1 where TorchScript, ONNX or a test fails')
    parser.add_argument('--out', type=Path, default=ROOT / 'benchmarks' / 'results' / 'matrix.json')
    return parser.parse_args()


def rows(environment: str) -> list[str]:
    """Return the names of the rows of an environment, the most important first."""
    main_ones = ['segformer_b0', 'mask2former_r50']
    models = [*main_ones, *(f'trained {name}' for name in TRAINED), *(name for name in names() if name not in main_ones)]
    # SegFormer's AOTInductor package is made in its row with the other formats.
    detectors = [f'detector {name}' for name in DETECTORS] if environment in WITH_DETECTORS else []
    return [*main_ones, WHOLE, *models[2:], 'files', 'fast tests', *detectors, *(f'{name} aotinductor' for name in models[1:])]


def run(row: str, folder: Path, limit: int) -> dict[str, Any]:
    """Run a row in a process of its own; return the result by format, or the reason why there is none."""
    python = str(folder / 'bin' / 'python')
    if row == 'fast tests':
        command = [python, '-W', 'ignore', '-m', 'pytest', '-q', '-n', '2', '-m', 'not slow', '-p', 'no:cacheprovider', *FAST]
    else:
        # Files of all environments stay beside them, for the others to load.
        files = [str(folder.parent / 'files'), folder.name] if row == 'files' else []
        command = [python, '-W', 'ignore', str(Path(__file__).with_name('matrix_row.py')), row, *files]
    started = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False, cwd=ROOT,
                              env={**os.environ, 'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1'})
    except subprocess.TimeoutExpired:
        return dict(reason=f'no result within {limit} s', seconds=limit)
    seconds = round(time.perf_counter() - started)
    last = (done.stdout.strip().splitlines() or [''])[-1]
    if row == 'fast tests':
        failed = [line.partition(' - ')[0] for line in done.stdout.splitlines() if line.startswith(('FAILED', 'ERROR'))]
        return dict(tests=last.strip('= '), failed=failed, seconds=seconds)
    try:
        return dict(formats={name: without_places(result, folder) for name, result in json.loads(last).items()}, seconds=seconds)
    except json.JSONDecodeError:
        reason = (done.stderr.strip().splitlines() or [f'exit code {done.returncode}'])[-1]
        return dict(reason=without_places(reason, folder)[:300], seconds=seconds)


def without_places(text: str, folder: Path) -> str:
    """Remove the folders in which the environments, the repository and temporary files are."""
    for place in (f'{folder.parent / "files"}/', f'{folder}/', f'{ROOT}/'):
        text = text.replace(place, '')
    return re.sub(rf'{re.escape(tempfile.gettempdir())}/\S*/', '', text)


if __name__ == '__main__':
    sys.exit(main())
