"""Write a seeded model as a checkpoint file in OpenMMLab's format."""
from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from ..inputs.shapes import traced_shape
from ..model.build import build_model, reading_no_weights
from ..model.config import export_section
from ..model.predictor import predictor
from . import seed_model
from .initial import unset_is_nan

if TYPE_CHECKING:
    from mmengine.config import Config


def write_checkpoint(cfg: Config, path: str | Path, seed: int = 0) -> None:
    """Build ``cfg.model``, seed it and write ``state_dict`` and ``meta``; the meta says that the weights are seeded."""
    with unset_is_nan(), reading_no_weights():
        model = build_model(cfg)
    seed_model(predictor(model), seed, traced_shape(cfg, export_section(cfg))[2:])
    meta = dict(seed=seed, made_by='mmexport make_checkpoint: seeded weights for demos and tests, not trained',
                time=time.strftime('%Y-%m-%d'))
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f'.{path.name}.{os.getpid()}')
    torch.save({'meta': meta, 'state_dict': model.state_dict()}, draft)
    draft.replace(path)
