"""Run a lowered file on its samples and compare the outputs."""
from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .comparison import ALL, COUNT, EAGER, Comparison
from .files import Runner, add_runner, load, runner_of, stale
from .foreign import SCHEMA, refuse_foreign, schema_of
from .judging import judge_samples
from .one_sample import all_of, check_raw, check_sample, gives_choices, on_device
from .samples import read_samples, same_shapes
from .timing import typical


def check(folder: Path, samples_file: Path, device: torch.device, raw: Path | None = None, trust: bool = False,
          runner_file: Path | None = None) -> dict[str, Any]:
    """Check one folder and return rows, reasons and times as JSON-able data; `verdict` says whether it passes.

    `choices` of the result are those of the file where they are right and eager chose otherwise (see `mmexport.checker.kinds.places`), by
    sample and output; `floors_count` says whether floors excuse anything in it.

    Args:
        raw: a folder with the same graph before its raw outputs were cut off; they are compared too.
        trust: run what would run code of the folder's author (see `mmexport.checker.foreign`).
        runner_file: the ``runner.py`` of a format that is not mmexport's own.
    """
    _exact_arithmetic()
    if folder.is_file():
        raise ValueError(f'it is a file; name its folder: {folder.parent}')
    if not folder.is_dir():
        raise ValueError('there is no such folder')
    if not (folder / 'manifest.json').is_file():
        raise ValueError(f'there is no manifest.json in {folder}; name the folder of one format, as WORK_DIR/torchscript')
    if not samples_file.is_file():
        raise ValueError(f'{samples_file} is missing (--no-verify, --no-samples, or too large to be kept): there is nothing to compare '
                         'with')
    manifest = json.loads((folder / 'manifest.json').read_text())
    if runner_file:
        add_runner(str(manifest['backend']), runner_file)
    samples_name = samples_file.name if samples_file.parent == folder else None
    result: dict[str, Any] = dict(backend=manifest['backend'], device=str(device), rows=[], vacuous={},
                                  stale=stale(folder, manifest, samples_name))
    if result['stale']:
        return result
    refuse_foreign(folder, manifest, trust, runner_of(manifest))
    if schema_of(manifest) < SCHEMA:
        result['older'] = f'its manifest has schema {schema_of(manifest)}, which declares no ranges of sizes: only its samples are checked'
    if hidden := [name for name in manifest.get('choices', []) if name not in {spec['name'] for spec in manifest['outputs']}]:
        result['chooses'] = (f'the file computes from {", ".join(hidden)}, which rounding may decide and it does not give: a right file '
                             'can differ on another machine than the one it was exported on. Export it there: that check follows choices')
    samples, extra = read_samples(samples_file)
    if not samples:
        raise ValueError(f'{samples_file} holds no sample: there is nothing to compare with')
    started = time.perf_counter()
    runner = load(folder, manifest, device)
    result['load_s'] = time.perf_counter() - started
    # Eager follows the choices of such a file: noise that changes its own choices says nothing about the comparison.
    result['floors_count'] = raw is None or not gives_choices(raw, manifest)
    limits = extra if result['floors_count'] else {**extra, 'floors': {}}
    rows: list[Comparison] = []
    choices: dict[str, dict[str, Any]] = {}
    for sample in samples:
        rows += check_sample(runner, sample, manifest, limits, device, choices)
    result['rows'] = [row.as_dict() for row in rows]
    result['run_s'] = time.perf_counter() - started - result['load_s']
    result['facts'] = dict(facts(runner.runner)) if (facts := getattr(runner_of(manifest), 'facts', None)) else {}
    if all(row.problem is None for row in rows):
        inputs = on_device(device, samples[0])
        with torch.no_grad():
            result['p50_s'] = typical(lambda: runner(*inputs), device)
        # A file that keeps state between calls shows it in the last of them.
        called = time.perf_counter()
        smallest = min(samples[1:] or samples, key=lambda sample: sample.image.numel())
        last_outputs, copies = _outputs_and_copies(runner, on_device(device, smallest))
        result['last_s'] = time.perf_counter() - called
        again = check_sample(runner, samples[0], manifest, limits, device)
        if not all(torch.equal(one, other) for one, other in zip(last_outputs, copies, strict=True)):
            problem = 'its outputs lie in memory that its next call overwrites'
            again.append(Comparison(samples[0].name, ALL, EAGER, COUNT, extra['tolerance'], problem=problem))
        result['rows'] += [replace(row, again=True).as_dict() for row in again if row.stage == EAGER and not row.passed]
    if raw is not None:
        # Of a sample that eager has followed all choices are judged.
        failed = {sample.name for sample in samples} if extra.get('followed') else {row.sample for row in rows if not row.passed}
        result['rows'] += [row.as_dict() for row in check_raw(raw, samples, limits, device, choices, failed)]
    result['choices'] = choices
    # A folder keeps the samples that fit its size limit; it may lack two of one shape.
    judged = judge_samples(manifest, samples, extra)
    pair = any(same_shapes(one, other) for one, other in combinations(samples, 2))
    result.update(judged if pair or 'judged' not in extra else extra['judged'])
    result['foreign_modules'] = sorted({name.split('.')[0] for name in sys.modules if name.startswith('mm')} - {'mmap'})
    return result


def verdict(result: dict[str, Any]) -> str | None:
    """Return in one line why the file is not shown to be right; None if it is."""
    if result['stale']:
        return str(result['stale'])
    rows = [Comparison.from_dict(row) for row in result['rows']]
    if not any(row.stage == EAGER for row in rows):
        return 'nothing was compared with eager'
    failed = [row for row in rows if row.stage == EAGER and not row.passed]
    if failed:
        return f'{failed[0].input_name}, {failed[0].output}: {failed[0].reason}' + (
            f' (and {len(failed) - 1} more rows)' if len(failed) > 1 else '')
    for name, reason in result['vacuous'].items():
        return f'vacuous: {name}: {reason}'
    return None


def _outputs_and_copies(runner: Runner, inputs: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the outputs of one call, and copies of them made right away."""
    with torch.no_grad():
        outputs = [output for output in all_of(runner(*inputs)) if isinstance(output, Tensor)]
    return outputs, [output.clone() for output in outputs]


def _exact_arithmetic() -> None:
    """Disable TF32, which keeps 10 of the 23 bits of a float32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
