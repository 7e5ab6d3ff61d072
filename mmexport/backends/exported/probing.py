"""Test forms of an op on the installed runtime before a model is lowered. Each op brings its probe.

Some runtimes compile GridSample wrongly, or rightly for a batch of one only. The forms of `mmexport.ops.op.Op.probed` are run at batch
1 and 3, and the results are kept by the versions of all that the graph goes through. Probes run in float32: in fewer bits nothing comes
within their tolerance.
"""
from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, Any

import torch

from ... import __version__
from ...adapters.base import OutputSpec
from ...compat.torch_versions import conflict_of
from ...errors import LoweringError, last_line
from ...ops.op import Op
from ..examples import input_specs_of, inputs_for

if TYPE_CHECKING:
    from .from_program import ProgramBackend

TOLERANCE = 1e-4


def choose_form(backend: ProgramBackend, device: torch.device, op: Op) -> tuple[str, dict[str, bool]]:
    """Return the first form of `op` that is right with `backend` on `device`. The result of each form that was tried comes with it.

    Raises:
        LoweringError: it gets none right.
    """
    key = f'{backend.cache_key()} torch {torch.__version__} mmexport {__version__} {device.type} {op.name}'
    place = Path(gettempdir()) / f'mmexport-probes-{getattr(os, "getuid", int)()}.json'
    cached = _read(place)
    if key in cached:
        results: dict[str, bool | str] = {**cached[key]}
    else:
        results = _try_forms(backend, device, op)
        # An error on the way (a full disk, a converter's defect) is not a result of the runtime; it is not cached.
        if all(isinstance(right, bool) for right in results.values()):
            draft = place.with_suffix(f'.{os.getpid()}')
            draft.write_text(json.dumps({**cached, key: results}))
            draft.replace(place)
    chosen = next((form for form, right in results.items() if right is True), None)
    if chosen is None:
        what = op.name.replace('_', ' ')
        lines = '; '.join(f'{form}: {"wrong" if right is False else right}' for form, right in results.items())
        raise LoweringError(f'{backend.name} ({key}) gets no form of {what} right ({lines}); another version of the runtime may'
                            + (f'. The result is cached in {place}: delete it to try again' if key in _read(place) else ''))
    return chosen, {form: right is True for form, right in results.items()}


def _try_forms(backend: ProgramBackend, device: torch.device, op: Op) -> dict[str, bool | str]:
    """Try form by form until one is right; return by form whether it is, or the error."""
    results: dict[str, bool | str] = {}
    for form in op.probed:
        try:
            results[form] = _right(backend, form, device, op)
        except Exception as exc:  # Runtimes raise exceptions of their own classes.
            if conflict := conflict_of(exc):
                raise conflict from exc
            results[form] = f'{type(exc).__name__}: {last_line(exc)}'
        if results[form] is True:
            break
    return results


def _right(backend: ProgramBackend, form: str, device: torch.device, op: Op) -> bool:
    trial = backend.full_precision().with_forms({op.name: form})
    assert op.probe is not None
    probe: Any = op.probe().to(device)
    probe.specs = (OutputSpec('probed', 'float32', op.axes, 'map'),)
    generator = torch.Generator().manual_seed(0)
    manifest = dict(inputs=[dict(name=spec.name, axes=list(spec.axes), dynamic=['batch']) for spec in input_specs_of(probe)],
                    outputs=[spec.as_dict() for spec in probe.specs])
    with TemporaryDirectory() as folder, torch.no_grad():
        artifact = trial._lower(probe, torch.zeros(1, 3, 16, 16, device=device), Path(folder) / backend.name, manifest)
        run = trial.load(artifact, device)
        pairs = []
        for batch in (1, 3):
            inputs = inputs_for(probe, torch.randn(batch, 3, 16, 16, generator=generator).to(device))
            pairs.append((probe(*inputs)[0], run(*inputs)[0].to(device)))
    return all(one.shape == other.shape and float((one - other).abs().max()) <= TOLERANCE * float(one.abs().max())
               for one, other in pairs)


def _read(place: Path) -> dict[str, dict[str, bool]]:
    try:
        return dict(json.loads(place.read_text()))
    except (OSError, ValueError):
        return {}
