"""Define an objective: the distance of a model's decisions on an image from target decisions.

Its gradient changes an image until the model decides more classes there, see `inputs.decisive`. Each task has its own objectives.
"""
from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

# Segments and labels that seeded weights give on each scene, after the config's own thresholds.
SEGMENTS, LABELS = 5, 4
Raw = tuple[Tensor, ...]
# Raw outputs and the normalised image -> how far the decisions are from the targets.
Objective = Callable[[Raw, Tensor], Tensor]


def pairs(scores: Tensor) -> list[tuple[int, int]]:
    """Pair rows with columns, the highest score first. Each row and each column is taken at most once."""
    remaining, pairs = scores.clone(), []
    for _ in range(min(remaining.shape)):
        row, column = divmod(int(remaining.argmax()), remaining.shape[1])
        pairs.append((row, column))
        remaining[row], remaining[:, column] = -math.inf, -math.inf
    return pairs


def several_labels(labels: Tensor) -> bool:
    """Return whether a label map has `LABELS` labels; one counts above 1% of the pixels."""
    counts = labels.unique(return_counts=True)[1]
    return int((counts > 0.01 * labels.numel()).sum()) >= LABELS
