"""A tiny graph of deformable attention, run on the installed runtime before a real one is trusted to it.

Some runtimes compile GridSample wrongly, or rightly for a batch of one only. Which form of the sampling a runtime gets right is asked of
the runtime itself, with places inside, at the border and outside of the levels, at batch 1 and 3, and remembered for its version.
"""
from __future__ import annotations

import json
import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..adapters.base import OutputSpec
from ..errors import LoweringError
from ..ops.deformable_attention import sampled

if TYPE_CHECKING:
    from .from_program import ProgramBackend

FORMS = ('grid', 'gather')
TOLERANCE = 1e-4


class Canary(nn.Module):
    """An adapter's shape around the sampling alone: image (N, 3, 16, 16) -> (N, 64, 6), two levels, two heads, two points."""

    specs = (OutputSpec('sampled', 'float32', ('batch', 'query', 'channel'), 'map'),)

    def __init__(self) -> None:
        super().__init__()
        side = (torch.arange(8) + 0.5) / 8
        self.register_buffer('places', torch.stack([side.repeat(8), side.repeat_interleave(8)], dim=-1), persistent=False)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        small = F.avg_pool2d(image, 2)
        rows = torch.cat([image.flatten(2), small.flatten(2)], dim=2).transpose(1, 2)
        query = small.flatten(2).transpose(1, 2)
        offsets = (6 * torch.cat([query.roll(turn, 1) for turn in range(6)], dim=2))[..., :16].unflatten(2, (2, 2, 2, 2))
        weights = torch.cat([query, -query, query.roll(3, 1)], dim=2)[..., :8].unflatten(2, (2, 4)).softmax(-1).unflatten(3, (2, 2))
        places: Any = self.places
        reference = places[None, :, None].expand(image.shape[0], -1, 2, -1)
        return (sampled(torch.stack([rows, -rows], dim=2), [(16, 16), (8, 8)], offsets, weights, reference),)


def right_form(backend: ProgramBackend, device: torch.device) -> tuple[str, dict[str, bool]]:
    """The first form that `backend` gets right on `device`, and what was found of each that was tried.

    Raises:
        LoweringError: it gets none right.
    """
    key = f'{backend.name} {backend.runtime} {_version(backend.runtime)} torch {torch.__version__} {device.type}'
    place = Path(gettempdir()) / f'mmexport-canary-{getattr(os, "getuid", int)()}.json'
    known = _read(place)
    if key not in known:
        known[key] = {}
        for form in FORMS:
            known[key][form] = _right(backend, form, device)
            if known[key][form]:
                break
        draft = place.with_suffix(f'.{os.getpid()}')
        draft.write_text(json.dumps(known))
        draft.replace(place)
    found = next((form for form, right in known[key].items() if right), None)
    if found is None:
        raise LoweringError(f'{backend.name} ({key}) computes deformable attention wrongly in every form ({", ".join(FORMS)}); another '
                            'version of the runtime may not. The finding is kept in ' + str(place))
    return found, dict(known[key])


def _right(backend: ProgramBackend, form: str, device: torch.device) -> bool:
    trial = backend.sampling(form)
    canary: Any = Canary().to(device)
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
