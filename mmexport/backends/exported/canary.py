"""Test forms of deformable attention and convolution on the installed runtime, with tiny graphs, before they are used.

Some runtimes compile GridSample wrongly, or rightly for a batch of one only. Which form of the sampling a runtime gets right is asked of
the runtime itself, with places inside, at the border and outside of the levels, at batch 1 and 3, and remembered for the versions of all
that the graph goes through. It is asked in float32: in fewer bits nothing comes as near as the canary demands.
"""
from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ... import __version__
from ...errors import LoweringError, last_line
from .canaries import AttentionCanary, ConvCanary

if TYPE_CHECKING:
    from .from_program import ProgramBackend

FORMS = ('grid', 'gather')
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Sampling:
    """Describe an op with several forms (see `mmexport.ops.lowerings`): its test graph and its upstream classes."""

    op: str
    canary: type[nn.Module]
    classes: frozenset[str]

    def occurs_in(self, model: nn.Module) -> bool:
        return any(cls.__name__ in self.classes for module in model.modules() for cls in type(module).__mro__)


SAMPLINGS = (Sampling('deformable_attention', AttentionCanary, frozenset({'MultiScaleDeformableAttention'})),
             Sampling('deformable_conv', ConvCanary, frozenset({'DeformConv2d', 'ModulatedDeformConv2d'})))


def right_form(backend: ProgramBackend, device: torch.device, sampling: Sampling = SAMPLINGS[0]) -> tuple[str, dict[str, bool]]:
    """Return the first form of `sampling` that is right with `backend` on `device`, and the result of each tried.

    Raises:
        LoweringError: it gets none right.
    """
    key = f'{backend.pedigree()} torch {torch.__version__} mmexport {__version__} {device.type} {sampling.op}'
    place = Path(gettempdir()) / f'mmexport-canary-{getattr(os, "getuid", int)()}.json'
    known = _read(place)
    if key in known:
        tried: dict[str, bool | str] = {**known[key]}
    else:
        tried = _tried(backend, device, sampling)
        # What went wrong on the way (a full disk, a converter's defect) says nothing of the runtime, and is asked again.
        if all(isinstance(right, bool) for right in tried.values()):
            draft = place.with_suffix(f'.{os.getpid()}')
            draft.write_text(json.dumps({**known, key: tried}))
            draft.replace(place)
    found = next((form for form, right in tried.items() if right is True), None)
    if found is None:
        what = sampling.op.replace('_', ' ')
        said = '; '.join(f'{form}: {"wrong" if right is False else right}' for form, right in tried.items())
        raise LoweringError(f'{backend.name} ({key}) gets no form of {what} right ({said}); another version of the runtime may. What is '
                            f'wrong is kept in {place}')
    return found, {form: right is True for form, right in tried.items()}


def _tried(backend: ProgramBackend, device: torch.device, sampling: Sampling) -> dict[str, bool | str]:
    """Try form by form until one is right; return by form whether it is, or the error."""
    tried: dict[str, bool | str] = {}
    for form in FORMS:
        try:
            tried[form] = _right(backend, form, device, sampling)
        except Exception as exc:  # A runtime refuses in whatever class of its own.
            tried[form] = f'{type(exc).__name__}: {last_line(exc)}'
        if tried[form] is True:
            break
    return tried


def _right(backend: ProgramBackend, form: str, device: torch.device, sampling: Sampling) -> bool:
    trial = backend.exact().sampling({sampling.op: form})
    canary: Any = sampling.canary().to(device)
    generator = torch.Generator().manual_seed(0)
    manifest = dict(inputs=[dict(name='image', dynamic=['batch'])], outputs=[spec.as_dict() for spec in canary.specs])
    with TemporaryDirectory() as folder, torch.no_grad():
        artifact = trial.lower_as_it_is(canary, torch.zeros(1, 3, 16, 16, device=device), Path(folder) / backend.name, manifest)
        run = trial.load(artifact, device)
        pairs = []
        for batch in (1, 3):
            image = torch.randn(batch, 3, 16, 16, generator=generator).to(device)
            pairs.append((canary(image)[0], run(image)[0].to(device)))
    return all(one.shape == other.shape and float((one - other).abs().max()) <= TOLERANCE * float(one.abs().max())
               for one, other in pairs)


def _read(place: Path) -> dict[str, dict[str, bool]]:
    try:
        return dict(json.loads(place.read_text()))
    except (OSError, ValueError):
        return {}
