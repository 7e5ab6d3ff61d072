"""Tiny graphs of deformable attention and convolution, run on the installed runtime before a real one is trusted to it.

Some runtimes compile GridSample wrongly, or rightly for a batch of one only. Which form of the sampling a runtime gets right is asked of
the runtime itself, with places inside, at the border and outside of the levels, at batch 1 and 3, and remembered for its version.
"""
from __future__ import annotations

import json
import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ..errors import LoweringError
from .canaries import AttentionCanary, ConvCanary

if TYPE_CHECKING:
    from .from_program import ProgramBackend

FORMS = ('grid', 'gather')
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Sampling:
    """An op that has several forms (see `mmexport.ops.lowerings`), the graph that tries it, and the upstream classes that it stands for."""

    op: str
    canary: type[nn.Module]
    classes: frozenset[str]

    def occurs_in(self, model: nn.Module) -> bool:
        return any(cls.__name__ in self.classes for module in model.modules() for cls in type(module).__mro__)


SAMPLINGS = (Sampling('deformable_attention', AttentionCanary, frozenset({'MultiScaleDeformableAttention'})),
             Sampling('deformable_conv', ConvCanary, frozenset({'DeformConv2d', 'ModulatedDeformConv2d'})))


def right_form(backend: ProgramBackend, device: torch.device, sampling: Sampling = SAMPLINGS[0]) -> tuple[str, dict[str, bool]]:
    """The first form of `sampling` that `backend` gets right on `device`, and what was found of each that was tried.

    Raises:
        LoweringError: it gets none right.
    """
    key = f'{backend.name} {backend.runtime} {_version(backend.runtime)} torch {torch.__version__} {device.type} {sampling.op}'
    place = Path(gettempdir()) / f'mmexport-canary-{getattr(os, "getuid", int)()}.json'
    known = _read(place)
    if key not in known:
        known[key] = {}
        for form in FORMS:
            known[key][form] = _right(backend, form, device, sampling)
            if known[key][form]:
                break
        draft = place.with_suffix(f'.{os.getpid()}')
        draft.write_text(json.dumps(known))
        draft.replace(place)
    found = next((form for form, right in known[key].items() if right), None)
    if found is None:
        what = sampling.op.replace('_', ' ')
        raise LoweringError(f'{backend.name} ({key}) computes {what} wrongly in every form ({", ".join(FORMS)}); another version of the '
                            f'runtime may not. The finding is kept in {place}')
    return found, dict(known[key])


def _right(backend: ProgramBackend, form: str, device: torch.device, sampling: Sampling) -> bool:
    trial = backend.sampling({sampling.op: form})
    canary: Any = sampling.canary().to(device)
    generator = torch.Generator().manual_seed(0)
    manifest = dict(inputs=[dict(name='image', dynamic=['batch'])], outputs=[spec.as_dict() for spec in canary.specs])
    with TemporaryDirectory() as folder, torch.no_grad():
        try:
            artifact = trial.lower_as_it_is(canary, torch.zeros(1, 3, 16, 16, device=device), Path(folder) / backend.name, manifest)
            run = trial.load(artifact, device)
            pairs = []
            for batch in (1, 3):
                image = torch.randn(batch, 3, 16, 16, generator=generator).to(device)
                pairs.append((canary(image)[0], run(image)[0].to(device)))
        except Exception:  # A runtime that refuses it, in whatever class of its own, does not get it right.
            return False
    return all(one.shape == other.shape and float((one - other).abs().max()) <= TOLERANCE * float(one.abs().max())
               for one, other in pairs)


def _version(distribution: str) -> str:
    """Of the one for CUDA where that is what is installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return version(f'{distribution}-gpu')


def _read(place: Path) -> dict[str, dict[str, bool]]:
    try:
        return dict(json.loads(place.read_text()))
    except (OSError, ValueError):
        return {}
