"""Run a file on one sample and compare its outputs. The raw ones of the graph that it was cut from are compared too."""
from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .admission import Refusal
from .compare import compare, own_floors
from .comparison import ALL, COUNT, EAGER, PATCHED, RAW, REFUSED, WRITES, Comparison
from .files import Runner, load, reason_of, stale
from .kinds import kind_of
from .packing import packed
from .reduced import FULL
from .samples import Sample

# Added to the evidence of a file. Upstream's own ``test_step`` may give rows in an order that the adapter does not keep.
IN_ORDER = {'in_order': torch.tensor(True)}


def gives_choices(raw: Path, manifest: Mapping[str, Any]) -> bool:
    """Return whether the graph in `raw` gives what eager would choose anew. The program that a file is compiled from does not."""
    apart = json.loads((raw / 'manifest.json').read_text())
    return apart['backend'] == manifest['backend'] and any(getattr(kind_of(spec['kind']), 'FREE', False) for spec in apart['raw'])


def check_sample(runner: Runner, sample: Sample, manifest: dict[str, Any], extra: dict[str, Any],
                 device: torch.device, choices: dict[str, dict[str, Any]] | None = None) -> list[Comparison]:
    common: dict[str, Any] = dict(sample=sample.name, floors={**extra['floors'], **own_floors(sample.floors)},
                                  tolerance=extra['tolerance'], precision=manifest.get('precision', FULL))
    try:
        inputs = on_device(device, sample)
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
            choices[sample.name] = {name: packed(output) for name, output in own.items()}
    if sample.patched:
        rows += compare(manifest['outputs'], sample.patched, outputs, sample.evidence, stage=PATCHED, **common)
    return rows


def check_raw(folder: Path, samples: Sequence[Sample], extra: dict[str, Any], device: torch.device,
              choices: dict[str, dict[str, Any]], failed: Collection[str]) -> list[Comparison]:
    """Compare the raw outputs of the graph that the file was cut from. Some samples have them, others the choices among them, or none.

    Args:
        failed: samples of which the choices must be known.
    """
    manifest = json.loads((folder / 'manifest.json').read_text())
    reason = stale(folder, manifest)
    if reason:
        return [Comparison(ALL, RAW, EAGER, COUNT, extra['tolerance'], problem=reason)]
    runner = load(folder, manifest, device)
    specs = manifest['raw']

    def raw_outputs(sample: Sample, *inputs: Tensor) -> tuple[Any, ...]:
        outputs = tuple(all_of(runner(*inputs)))[-len(specs):]
        return tuple(output for spec, output in zip(specs, outputs, strict=True) if spec['name'] in sample.raw)

    rows: list[Comparison] = []
    for sample in samples:
        compared = [spec for spec in specs if spec['name'] in sample.raw]
        if any(not getattr(kind_of(spec['kind']), 'CHOICE', False) for spec in compared) or (compared and sample.name in failed):
            plain = Sample(sample.name, sample.image, sample.raw, sample.raw_evidence, floors=sample.floors, inputs=sample.inputs)
            raw_rows = check_sample(partial(raw_outputs, sample), plain, {**manifest, 'outputs': compared}, extra, device, choices)
            rows += [replace(row, output=RAW) if row.output == ALL else row for row in raw_rows]
    return rows


def on_device(device: torch.device, sample: Sample) -> tuple[Tensor, ...]:
    """Return copies of the sample's inputs on `device`."""
    return tuple(tensor.to(device, copy=True) for tensor in sample.file_inputs)


def _cpu(outputs: Any) -> tuple[Tensor, ...]:
    return tuple(output.cpu() if isinstance(output, Tensor) else output for output in all_of(outputs))


def all_of(outputs: Any) -> Sequence[Any]:
    return outputs if isinstance(outputs, (tuple, list)) else (outputs,)
