"""Fix the random numbers of models that draw some while they predict.

SegNeXt starts its matrix factorisation from random bases, new ones on every call: eager differs from itself. Eager is therefore always run
from `SEED`, and a patch for such a model draws the same numbers once.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

SEED = 0


@contextmanager
def fixed_seed() -> Iterator[None]:
    """Seed torch's generators inside the block, and restore them. These are the CPU's and, if CUDA is initialised, each GPU's."""
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(SEED)
        yield
