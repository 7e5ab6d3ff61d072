"""Compare expected outputs with each other and with the nearest constant, to detect vacuous checks."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .counting import share

CHANGED_SHARE = 0.95
CHANGED_BY = 100
LABELS = 3
LABEL_SHARE = 0.01
CHANGED_PIXELS = 0.10


def middle(values: Sequence[Tensor]) -> Tensor:
    """Return the mid-range of `values`: the constant nearest to all of them."""
    return (torch.stack([value.min() for value in values]).min() + torch.stack([value.max() for value in values]).max()) / 2


def same_values(one: Tensor, other: Tensor, tolerance: float, unit: str = 'channels') -> str | None:
    """Return why two continuous outputs (N, units, ...) are too much alike, or None."""
    scale = max(float(one.abs().max()), float(other.abs().max()), 1e-12)
    change = (one.double() - other.double())[:1]
    rms = change.flatten(2).pow(2).mean(dim=2).sqrt().flatten() / scale
    moved = share(rms >= CHANGED_BY * tolerance)
    if moved >= CHANGED_SHARE:
        return None
    return f'only {moved:.0%} of the {unit} change by {CHANGED_BY} tolerances between two inputs (at least {CHANGED_SHARE:.0%} required)'


def same_map(one: Tensor, other: Tensor, labels: int, margin: float) -> str | None:
    """Return why two label maps are too much alike, or None. Maps with too few labels have a reason too."""
    for image in (one[0], other[0]):
        counts = image.unique(return_counts=True)[1]
        large = int((counts > margin * LABEL_SHARE * image.numel()).sum())
        if large < labels:
            return f'only {large} labels cover over {LABEL_SHARE:.0%} of the pixels (at least {labels} required)'
    changed = share(one[0] != other[0])
    if changed < margin * CHANGED_PIXELS:
        return f'only {changed:.1%} of the pixels change between two inputs (at least {CHANGED_PIXELS:.0%} required)'
    return None


def same_rows(one: Mapping[str, Tensor], other: Mapping[str, Tensor], margin: float) -> str | None:
    """Return why the masks of two sets of instances are too much alike, or None."""
    count = min(int(one['num'][0]), int(other['num'][0]))
    if count < LABELS:
        return f'only {count} instances (at least {LABELS} required)'
    first, second = one['masks'][0, :count], other['masks'][0, :count]
    union = (first | second).sum()
    changed = float((first ^ second).sum()) / max(float(union), 1.0)
    if not bool(torch.gt(union, 0)) or changed < margin * CHANGED_PIXELS:
        return f'only {changed:.1%} of the mask pixels change between two inputs (at least {CHANGED_PIXELS:.0%} required)'
    return None
