"""Audit and repair a saved TorchScript file, without the model that it was made from."""
from __future__ import annotations

import json
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..adapters.specs import IMAGE
from ..compat.pytree import tree_leaves
from ..errors import InputError, last_line
from .dispatch import Dispatched
from .findings import Audit, Finding
from .literals import MARKS, follow_input, literals, mark

SHAPE = (1, 3, 256, 256)


def load_script(path: str | Path) -> Any:
    """Return the module in eval mode on the CPU with inlined calls. No device literal is missed then.

    Raises:
        InputError: the file is no TorchScript file.
    """
    if not Path(path).is_file():
        raise InputError(f'{path}: no such file')
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        try:
            module = torch.jit.load(str(path), map_location='cpu').eval()
        except (RuntimeError, ValueError) as exc:
            raise InputError(f'{path} is not a TorchScript file: {str(exc).strip().splitlines()[0][:160]}') from exc
    torch._C._jit_pass_inline(module.graph)
    return module


def inputs_for(path: str | Path, size: Sequence[int] | None = None) -> tuple[Tensor, ...]:
    """Return random inputs as the manifest beside the file describes them; one picture for a file of other tools.

    Args:
        size: height and width, instead of those that were traced.
    """
    manifest = Path(path).with_name('manifest.json')
    specs = json.loads(manifest.read_text())['inputs'] if manifest.is_file() else [dict(traced=SHAPE)]
    generator = torch.Generator().manual_seed(0)
    sides = dict(zip(('height', 'width'), size or (), strict=False))
    shapes = [[sides.get(name, side) for name, side in zip(spec.get('axes', IMAGE.axes), spec['traced'], strict=True)] for spec in specs]
    # Of whole numbers (sizes, indices) a small one is always valid.
    return tuple(torch.randn(shape, generator=generator) if spec.get('dtype', 'float32').startswith('float')
                 else torch.ones(shape, dtype=getattr(torch, spec['dtype'])) for shape, spec in zip(shapes, specs, strict=True))


def audit_script(path: str | Path, inputs: Sequence[Tensor], device: str | torch.device = 'cuda') -> Audit:
    """Run the file on the CPU as if it and `inputs` were on `device`.

    Raises:
        InputError: the file cannot be read, or does not take `inputs`.
    """
    started = time.perf_counter()
    findings, ops = _watch(path, inputs)
    return Audit(str(torch.device(device)), tuple(findings.values()), (), ops, time.perf_counter() - started)


def _watch(path: str | Path, inputs: Sequence[Tensor]) -> tuple[dict[int, Finding], int]:
    """Return findings by the number of their literal, and how many operators ran. The number is negative without a literal."""
    count = len(literals(load_script(path).graph))
    findings: dict[int, Finding] = {}
    ops = 0
    # Each round can tell so many literals apart; a file without any is run once, for factories without a device.
    for first in range(0, max(count, 1), MARKS):
        module = load_script(path)
        marked = literals(module.graph)[first:first + MARKS]
        mark(module.graph, marked)
        mode = Dispatched(marked)
        with torch.no_grad(), torch.jit.optimized_execution(False), mode:
            try:
                module(*inputs)
            except Exception as exc:
                shapes = ' and '.join(str(tuple(tensor.shape)) for tensor in inputs)
                raise InputError(f'{path} does not take {"tensors" if len(inputs) > 1 else "a tensor"} of shape {shapes}: '
                                 f'{last_line(exc)}') from exc
        findings |= {first + number if number >= 0 else number: finding for number, finding in mode.findings.items()}
        ops = max(ops, mode.ops)
    return findings, ops


def fix_script(path: str | Path, out: str | Path, inputs: Sequence[Tensor]) -> Audit:
    """Write `out` with faulty devices replaced by that of the input. The outputs are checked to be the same.

    Devices that meet nothing (a ``.cpu()`` before the end) are left, and listed.

    Raises:
        InputError: the file cannot be read or does not take `inputs`, or the fixed one differs on the CPU.
    """
    started = time.perf_counter()
    wrong, _ = _watch(path, inputs)
    module = load_script(path)
    device_literals = literals(module.graph)
    chosen = [literal for number, literal in enumerate(device_literals) if number in wrong]
    fixed = [f'{literal.words} ({literal.place})' for literal in chosen]
    unchanged = [f'unchanged, because its result never meets another device: {literal.words} ({literal.place})'
                 for number, literal in enumerate(device_literals) if number not in wrong]
    draft = Path(out).with_name(f'.{Path(out).name}.draft')
    try:
        follow_input(module.graph, chosen)
        torch.jit.save(module, str(draft))
        after, ops = _watch(draft, inputs)
        _check_same(path, draft, inputs)
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)
    return Audit('cuda', tuple(after.values()), (), ops, time.perf_counter() - started, (*fixed, *unchanged))


def _check_same(path: str | Path, out: str | Path, inputs: Sequence[Tensor]) -> None:
    with torch.no_grad():
        expected, actual = (tree_leaves(load_script(place)(*inputs)) for place in (path, out))
    if len(expected) != len(actual) or not all(torch.equal(one, other) if isinstance(one, Tensor) else one == other
                                            for one, other in zip(expected, actual, strict=True)):
        raise InputError(f'{out} does not equal {path} on the CPU, and must not be used; export the model again')
