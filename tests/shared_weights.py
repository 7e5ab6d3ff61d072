"""Share seeded weights between the workers of one run: seeding a small Mask2Former takes as long as exporting it."""
from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

# Set by conftest.py where there is more than one worker.
folder: Path | None = None
# Seconds below which weights are seeded again.
QUICK = 3


def seed_or_load(name: str, model: nn.Module, seed: Callable[[], object]) -> None:
    """Call `seed`, which seeds `model`, unless another worker has done it."""
    kept = folder / f'{name}.pth' if folder else None
    if kept and kept.is_file():
        model.load_state_dict(torch.load(kept, weights_only=True))
        model.eval()
        return
    started = time.perf_counter()
    seed()
    if kept and time.perf_counter() - started > QUICK:
        kept.parent.mkdir(exist_ok=True)
        part = kept.with_suffix(f'.{os.getpid()}')
        torch.save(model.state_dict(), part)
        part.replace(kept)
