"""A check that cannot fail is none: the expected outputs must depend on the input, visibly."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

CHANGED_SHARE = 0.95
CHANGED_BY = 100
LABELS = 3
LABEL_SHARE = 0.01
CHANGED_PIXELS = 0.10
REMEDY = ('a constant would pass as well. Use trained weights, or a seeded checkpoint made for this: tools/make_checkpoint.py CONFIG '
          'OUT')


def vacuous(specs: Sequence[Mapping[str, Any]], one: Mapping[str, Tensor], other: Mapping[str, Tensor], tolerance: float,
            num_classes: int, margin: float = 1.0) -> dict[str, str]:
    """By output name, why two inputs of one shape have expected outputs that are too much alike; {} where all is well.

    Args:
        margin: by what factor more change is asked for than a verification needs.
    """
    found = {}
    for spec in specs:
        name, kind = str(spec['name']), str(spec['kind'])
        if kind in ('labels', 'panoptic'):
            reason = _same_map(one[name], other[name], LABELS if kind == 'panoptic' else min(LABELS, max(num_classes, 2)), margin)
        elif kind == 'instance':
            reason = _same_rows(one, other, margin) if name == 'masks' else None
        else:
            reason = _same_values(one[name], other[name], kind, margin * tolerance)
        if reason:
            found[name] = f'{reason}: {REMEDY}'
    return found


def _same_values(one: Tensor, other: Tensor, kind: str, tolerance: float) -> str | None:
    scale = max(float(one.abs().max()), float(other.abs().max()), 1e-12)
    change = (one.double() - other.double())[:1]
    if kind == 'map':
        change = change[:, None]
    rms = change.flatten(2).pow(2).mean(dim=2).sqrt().flatten() / scale
    moved = float((rms >= CHANGED_BY * tolerance).double().mean())
    if moved >= CHANGED_SHARE:
        return None
    unit = 'queries' if kind == 'queries' else 'channels'
    return f'only {moved:.0%} of the {unit} change by {CHANGED_BY} tolerances between two inputs ({CHANGED_SHARE:.0%} must)'


def _same_map(one: Tensor, other: Tensor, labels: int, margin: float) -> str | None:
    for image in (one[0], other[0]):
        counts = image.unique(return_counts=True)[1]
        large = int((counts > margin * LABEL_SHARE * image.numel()).sum())
        if large < labels:
            return f'only {large} labels cover over {LABEL_SHARE:.0%} of the pixels ({labels} must)'
    changed = float((one[0] != other[0]).double().mean())
    if changed < margin * CHANGED_PIXELS:
        return f'only {changed:.1%} of the pixels change between two inputs ({CHANGED_PIXELS:.0%} must)'
    return None


def _same_rows(one: Mapping[str, Tensor], other: Mapping[str, Tensor], margin: float) -> str | None:
    count = min(int(one['num'][0]), int(other['num'][0]))
    if count < LABELS:
        return f'only {count} instances ({LABELS} must be found)'
    first, second = one['masks'][0, :count], other['masks'][0, :count]
    union = (first | second).sum()
    changed = float((first ^ second).sum()) / max(float(union), 1.0)
    if not bool(torch.gt(union, 0)) or changed < margin * CHANGED_PIXELS:
        return f'only {changed:.1%} of the mask pixels change between two inputs ({CHANGED_PIXELS:.0%} must)'
    return None
