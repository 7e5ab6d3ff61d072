"""Replace the random bases of mmseg's SegNeXt head: they are drawn once."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mmexport.patching import Patch
from mmexport.registry import PATCHES
from mmexport.utils.randomness import SEED

# For 64 pictures, with the 512 channels and 64 bases that upstream has by default.
PICTURES = 64
POOL = PICTURES * 512 * 64


@PATCHES.register_module()
class RandomBases(Patch):
    """Start the matrix factorisation from bases drawn once: upstream draws new ones on every call, so that no two answers are equal.

    They are the ones that eager draws from that seed, also for each further picture of a batch, which upstream gives bases of its own.

    Source: mmseg/models/decode_heads/ham_head.py, ``NMF2D._build_bases`` (SegNeXt).
    """

    targets = ('mmseg.models.decode_heads.ham_head.NMF2D._build_bases',)
    upstream = 'mmsegmentation 1.0.0 1.2.2'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        pool = torch.rand(POOL, generator=torch.Generator().manual_seed(SEED)).numpy()

        def build_bases(module: Any, B: Any, S: Any, D: Any, R: Any, device: Any = None, cuda: bool = False) -> Tensor:
            # mmseg 1.0 passes `cuda` in the place of `device`.
            device = torch.device('cuda') if cuda else device
            count = B * S
            drawn = _drawn(pool, int(S), int(D), int(R))
            # By index and not by slice: a batch beyond what was drawn starts over instead of being short.
            rows = torch.arange(count, device=device) % len(drawn)
            return F.normalize(torch.from_numpy(drawn).to(device)[rows], dim=1)

        return build_bases


def _drawn(pool: np.ndarray[Any, Any], sets: int, channels: int, bases: int) -> np.ndarray[Any, Any]:
    """Return bases (rows, channels, bases), rows for at most `PICTURES`."""
    rows = min(PICTURES * sets, len(pool) // (channels * bases))
    if rows < sets:
        raise ValueError(f'RandomBases draws {len(pool)} values, and one picture needs {sets * channels * bases}: raise POOL in '
                         'patches/random_bases.py')
    return pool[:rows * channels * bases].reshape(rows, channels, bases).copy()
