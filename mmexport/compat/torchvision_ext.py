"""Declare torchvision's compiled ops if they do not load. They may be built for another torch, or for CUDA.

``import torchvision`` then fails with ``operator torchvision::nms does not exist``, and with it mmpretrain and all models that have a
backbone of its, although none of them calls such an op. Declared without an implementation they let those models be built; one that
is really called raises torch's own error that it has none. Compiled ops that load have precedence. Checked with torchvision 0.28.0+cu130
beside torch 2.13.0+cpu.
"""
from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path

import torch

BOXES = '(Tensor dets, Tensor scores, float iou_threshold) -> Tensor'
# Those for which torchvision's Python registers a fake implementation while it is imported.
NAMES = ('nms', 'qnms')
_DECLARED: list[torch.library.Library] = []


@cache
def provide_torchvision_ops() -> str | None:
    """Make ``import torchvision`` work and say what it found: ``'compiled'``, ``'declared'``, or None where there is no torchvision."""
    if 'torchvision' in sys.modules:
        return 'compiled' if sys.modules['torchvision'].extension._has_ops() else 'declared'
    spec = importlib.util.find_spec('torchvision')
    if spec is None or spec.origin is None:
        return None
    if _loads(Path(spec.origin).parent):
        return 'compiled'
    library = torch.library.Library('torchvision', 'FRAGMENT')
    for name in NAMES:
        library.define(name + BOXES)
    # Declarations end with the Library object, so keep it.
    _DECLARED.append(library)
    return 'declared'


def _loads(package: Path) -> bool:
    for file in sorted(package.glob('_C.*')):
        try:
            torch.ops.load_library(str(file))
        except (OSError, RuntimeError):
            continue
        return True
    return False
