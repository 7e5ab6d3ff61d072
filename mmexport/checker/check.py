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

from .admission import Refusal
from .compare import compare, own_floors
from .comparison import ALL, COUNT, RAW, REFUSED, WRITES, Comparison
from .files import Runner, add_runner, load, reason_of, runner_of, stale
from .foreign import SCHEMA, refuse_foreign, schema_of
from .judging import judge_samples
from .kinds import kind_of
from .reduced import FULL
from .samples import Sample, read_samples, same_shapes
from .timing import typical

EAGER, PATCHED = 'artifact vs eager', 'artifact vs patched'
# Added to the evidence of a file. Upstream's own ``test_step`` may give rows in an order that the adapter does not keep.
IN_ORDER = {'in_order': torch.tensor(True)}


def check(folder: Path, samples_file: Path, device: torch.device, raw: Path | None = None, trust: bool = False,
          runner_file: Path | None = None) -> dict[str, Any]:
    """Check one folder and return rows, reasons and times as JSON-able data; `verdict` says whether it passes.

    `choices` of the result are those of the file where they are right and eager chose otherwise (see `mmexport.checker.kinds.places`), by
    sample and output.

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
        result['chooses'] = (f'the file computes from {", ".join(hidden)}, which ties of scores decide and it does not give: a right file '
                             'can differ on another machine than the one it was exported on. Export it there: that check follows choices')
    samples, extra = read_samples(samples_file)
    if not samples:
        raise ValueError(f'{samples_file} holds no sample: there is nothing to compare with')
    started = time.perf_counter()
    runner = load(folder, manifest, device)
    result['load_s'] = time.perf_counter() - started
    rows: list[Comparison] = []
    choices: dict[str, dict[str, Any]] = {}
    for sample in samples:
        rows += _check_sample(runner, sample, manifest, extra, device, choices)
    result['rows'] = [row.as_dict() for row in rows]
    result['run_s'] = time.perf_counter() - started - result['load_s']
    result['facts'] = dict(facts(runner.runner)) if (facts := getattr(runner_of(manifest), 'facts', None)) else {}
    if all(row.problem is None for row in rows):
        inputs = _on(device, samples[0])
        with torch.no_grad():
            result['p50_s'] = typical(lambda: runner(*inputs), device)
        # A file that keeps state between calls shows it in the last of them.
        called = time.perf_counter()
        smallest = min(samples[1:] or samples, key=lambda sample: sample.image.numel())
        last_outputs, copies = _outputs_and_copies(runner, _on(device, smallest))
        result['last_s'] = time.perf_counter() - called
        again = _check_sample(runner, samples[0], manifest, extra, device)
        if not all(torch.equal(one, other) for one, other in zip(last_outputs, copies, strict=True)):
            problem = 'its outputs lie in memory that its next call overwrites'
            again.append(Comparison(samples[0].name, ALL, EAGER, COUNT, extra['tolerance'], problem=problem))
        result['rows'] += [replace(row, again=True).as_dict() for row in again if row.stage == EAGER and not row.passed]
    if raw is not None:
        result['rows'] += [row.as_dict() for row in _check_raw(raw, samples, extra, device, choices)]
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


def _check_sample(runner: Runner, sample: Sample, manifest: dict[str, Any], extra: dict[str, Any],
                  device: torch.device, choices: dict[str, dict[str, Any]] | None = None) -> list[Comparison]:
    common: dict[str, Any] = dict(sample=sample.name, floors={**extra['floors'], **own_floors(sample.floors)},
                                  tolerance=extra['tolerance'], precision=manifest.get('precision', FULL))
    try:
        inputs = _on(device, sample)
        with torch.no_grad():
            outputs = _cpu(runner(*inputs))
        if not all(torch.equal(tensor.cpu(), original) for tensor, original in zip(inputs, sample.file_inputs, strict=True)):
            problem = 'it writes into its input, so that the next user of that tensor gets something else'
            return [Comparison(sample.name, ALL, EAGER, WRITES, extra['tolerance'], problem=problem)]
    except Refusal as exc:
        return [Comparison(sample.name, ALL, EAGER, REFUSED, extra['tolerance'], problem=f'refused, and eager takes it: {exc}')]
    except Exception as exc:  # Any exception of the file is a failure of the file, and is reported as one.
        problem = f'the file raised {type(exc).__name__}: {reason_of(exc)}'
        return [Comparison(sample.name, ALL, EAGER, COUNT, extra['tolerance'], problem=problem)]
    rows = compare(manifest['outputs'], sample.expected, outputs, {**sample.evidence, **IN_ORDER}, stage=EAGER, **common)
    if choices is not None and len(outputs) == len(manifest['outputs']):
        kinds = {spec['kind'] for spec in manifest['outputs'] if getattr(kind_of(spec['kind']), 'CHOICE', False)}
        own = {spec['name']: output for spec, output in zip(manifest['outputs'], outputs, strict=True) if spec['kind'] in kinds}
        judged = [row.passed for row in rows if row.kind in kinds]
        changed = any(name in sample.expected and not torch.equal(sample.expected[name], output) for name, output in own.items())
        if changed and judged and all(judged):
            choices[sample.name] = {name: output.tolist() for name, output in own.items()}
    if sample.patched:
        rows += compare(manifest['outputs'], sample.patched, outputs, sample.evidence, stage=PATCHED, **common)
    return rows


def _check_raw(folder: Path, samples: Sequence[Sample], extra: dict[str, Any], device: torch.device,
               choices: dict[str, dict[str, Any]]) -> list[Comparison]:
    """Compare the raw outputs of the graph that the file was cut from. Only some samples have them."""
    manifest = json.loads((folder / 'manifest.json').read_text())
    reason = stale(folder, manifest)
    if reason:
        return [Comparison(ALL, RAW, EAGER, COUNT, extra['tolerance'], problem=reason)]
    runner = load(folder, manifest, device)
    count = len(manifest['raw'])
    rows: list[Comparison] = []
    for sample in samples:
        if sample.raw:
            plain = Sample(sample.name, sample.image, sample.raw, sample.raw_evidence, floors=sample.floors, inputs=sample.inputs)
            raw_rows = _check_sample(lambda *inputs: tuple(_all(runner(*inputs)))[-count:], plain,
                                  {**manifest, 'outputs': manifest['raw']}, extra, device, choices)
            rows += [replace(row, output=RAW) if row.output == ALL else row for row in raw_rows]
    return rows


def _on(device: torch.device, sample: Sample) -> tuple[Tensor, ...]:
    """Return copies of the sample's inputs on `device`."""
    return tuple(tensor.to(device, copy=True) for tensor in sample.file_inputs)


def _outputs_and_copies(runner: Runner, inputs: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the outputs of one call, and copies of them made right away."""
    with torch.no_grad():
        outputs = [output for output in _all(runner(*inputs)) if isinstance(output, Tensor)]
    return outputs, [output.clone() for output in outputs]


def _cpu(outputs: Any) -> tuple[Tensor, ...]:
    return tuple(output.cpu() if isinstance(output, Tensor) else output for output in _all(outputs))


def _all(outputs: Any) -> Sequence[Any]:
    return outputs if isinstance(outputs, (tuple, list)) else (outputs,)


def _exact_arithmetic() -> None:
    """Disable TF32, which keeps 10 of the 23 bits of a float32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
