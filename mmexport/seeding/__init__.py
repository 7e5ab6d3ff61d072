"""Seeded weights whose outputs are worth comparing; for demos and tests, never for results.

Plain random weights prove nothing: `attention_weights` start at zero, so that swapped attention levels show an error of 0.0;
a segmentor without calibrated norms is constant to 1e-3; random panoptic results are all void.
"""
from __future__ import annotations

import torch
from torch import Tensor, nn

from ..adapters import Adapter, build_adapter
from ..inputs import picture
from .calibrate import calibrate
from .constants import randomise_constants
from .queries import fit_queries, query_heads

IMAGES, SIDE = 16, 128


@torch.no_grad()
def seed_model(model: nn.Module, seed: int = 0) -> dict[str, Tensor]:
    """Initialise `model` in place, without downloads and without knowing its name; returns its state dict.

    ``init_weights()``, then constant parameters drawn at random, norms and class layers calibrated on 16 synthetic scenes of 128 x
    128, and the readouts of mask-classification heads solved so that confident queries hold regions of their own. Takes under a
    minute for Mask2Former-R50 on two cores.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        _forget_pretrained(model)
        model.init_weights()  # type: ignore[operator]
        model.eval()
        randomise_constants(model, generator)
        adapter = build_adapter(model, outputs='raw')
        images = _scenes(adapter, 7919 + seed)
        calibrate(model, lambda: adapter.raw(images), generator)
        for head in query_heads(model):
            fit_queries(model, head, lambda: adapter.raw(images), generator)
    return model.state_dict()


def _scenes(adapter: Adapter, seed: int) -> Tensor:
    """Half of them whole scenes, half of them windows of scenes four times as wide: inputs of other sizes show other scales."""
    whole = picture((IMAGES // 2, 3, SIDE, SIDE), seed, adapter)
    wide = picture((IMAGES // 2, 3, 4 * SIDE, 4 * SIDE), seed + 1, adapter)
    corner = 3 * SIDE // 2
    return torch.cat([whole, wide[..., corner:corner + SIDE, corner:corner + SIDE]])


def _forget_pretrained(model: nn.Module) -> None:
    for module in model.modules():
        init_cfg = getattr(module, 'init_cfg', None)
        if isinstance(init_cfg, dict) and init_cfg.get('type') == 'Pretrained':
            module.init_cfg = None  # type: ignore[assignment]
        if isinstance(getattr(module, 'pretrained', None), str):
            module.pretrained = None  # type: ignore[assignment]
