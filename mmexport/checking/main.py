"""The program: take a folder with a lowered file, run it on its samples, compare, say what was found."""
from __future__ import annotations

import argparse
import json
import sys
import time
import zipfile
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .compare import compare
from .comparison import Comparison
from .files import Runner, load, stale
from .samples import Sample, read_samples
from .vacuous import vacuous

EAGER, PATCHED = 'artifact vs eager', 'artifact vs patched'


def main(argv: Sequence[str] | None = None) -> int:
    args = _parse(argv)
    try:
        found = check(args.folder, args.samples or args.folder / 'samples.npz', torch.device(args.device))
    except (OSError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile) as exc:
        print(f'{args.folder} cannot be checked: {type(exc).__name__}: {_reason(exc)}', file=sys.stderr)
        return 2
    if args.out:
        args.out.write_text(json.dumps(found))
    else:
        print(table(found))
    return 0 if verdict(found) is None else 1


def check(folder: Path, samples_file: Path, device: torch.device) -> dict[str, Any]:
    """Rows, reasons and times as plain JSON-able data; `verdict` says whether it is a pass."""
    _exact_arithmetic()
    if not samples_file.is_file():
        raise ValueError(f'{samples_file} is missing: it was exported with --no-samples, so there is nothing to compare with')
    manifest = json.loads((folder / 'manifest.json').read_text())
    found: dict[str, Any] = dict(backend=manifest['backend'], device=str(device), rows=[], vacuous={}, stale=stale(folder, manifest))
    if found['stale']:
        return found
    samples, extra = read_samples(samples_file)
    started = time.perf_counter()
    runner = load(folder, manifest, device)
    found['load_s'] = time.perf_counter() - started
    rows: list[Comparison] = []
    for sample in samples:
        rows += _check_sample(runner, sample, manifest, extra, device)
    found['rows'] = [row.as_dict() for row in rows]
    found['run_s'] = time.perf_counter() - started - found['load_s']
    found['vacuous'] = _vacuous(samples, manifest, extra['tolerance'])
    found['foreign_modules'] = sorted({name.split('.')[0] for name in sys.modules if name.startswith('mm')} - {'mmap'})
    return found


def verdict(found: dict[str, Any]) -> str | None:
    """Why the file is not shown to be right, in one line; None where it is."""
    if found['stale']:
        return str(found['stale'])
    rows = [Comparison.from_dict(row) for row in found['rows']]
    if not any(row.stage == EAGER for row in rows):
        return 'nothing was compared with eager'
    failed = [row for row in rows if row.stage == EAGER and not row.passed]
    if failed:
        return f'{failed[0].sample}, {failed[0].output}: {failed[0].reason}' + (
            f' (and {len(failed) - 1} more rows)' if len(failed) > 1 else '')
    for name, reason in found['vacuous'].items():
        return f'vacuous: {name}: {reason}'
    return None


def table(found: dict[str, Any]) -> str:
    """Plain text in 80 columns, for a machine without anything installed."""
    lines = [f"{'sample':<16}{'output':<13}{'max rel':>9}{'cosine':>10}  result"]
    for content in found['rows']:
        row = Comparison.from_dict(content)
        if row.stage == EAGER:
            rel = '-' if row.max_rel is None else f'{row.max_rel:.1e}'
            cosine = '-' if row.cosine is None else f'{row.cosine:.6f}'
            lines.append(f"{row.sample:<16}{row.output:<13}{rel:>9}{cosine:>10}  {'pass' if row.passed else 'FAIL'}")
    reason = verdict(found)
    return '\n'.join([*lines, f"PASS on {found['device']}" if reason is None else f'FAIL: {reason}'])


def _check_sample(runner: Runner, sample: Sample, manifest: dict[str, Any], extra: dict[str, Any],
                  device: torch.device) -> list[Comparison]:
    common: dict[str, Any] = dict(sample=sample.name, floors=extra['floors'], tolerance=extra['tolerance'])
    try:
        with torch.no_grad():
            outputs = _cpu(runner(sample.image.to(device)))
    except Exception as exc:  # Whatever the file raises is a finding about the file, and goes into the report as one.
        problem = f'the file raised {type(exc).__name__}: {_reason(exc)}'
        return [Comparison(sample.name, '(all)', EAGER, 'count', extra['tolerance'], problem=problem)]
    rows = compare(manifest['outputs'], sample.expected, outputs, sample.evidence, stage=EAGER, **common)
    if sample.patched:
        rows += compare(manifest['outputs'], sample.patched, outputs, sample.evidence, stage=PATCHED, **common)
    return rows


def _vacuous(samples: Sequence[Sample], manifest: dict[str, Any], tolerance: float) -> dict[str, str]:
    pairs = [(one, other) for one, other in combinations(samples, 2) if one.image.shape == other.image.shape]
    if not pairs:
        return {'(all)': 'no two samples have the same shape, so nothing shows that the outputs depend on the input'}
    one, other = pairs[0]
    return vacuous(manifest['outputs'], one.expected, other.expected, tolerance, int(manifest['num_classes']))


def _cpu(outputs: Any) -> tuple[Tensor, ...]:
    outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    return tuple(output.cpu() if isinstance(output, Tensor) else output for output in outputs)


def _reason(exc: Exception) -> str:
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return lines[-1][:300] if lines else '(no message)'


def _exact_arithmetic() -> None:
    """TF32 keeps 10 bits of a float32's 23; parity is measured without it."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='verify', description='Check a lowered file against its samples, with torch and numpy alone.')
    parser.add_argument('folder', type=Path, help='holds the file, manifest.json and samples.npz')
    parser.add_argument('--samples', type=Path, help='another samples file')
    parser.add_argument('--device', default='cpu')
    parser.add_argument('--out', type=Path, help='write the findings as JSON instead of a table')
    return parser.parse_args(argv)
