"""Compare choices (N, Q) among places: the best scores of eager, in order. Rounding may take the next one.

Values that are computed from a choice can be compared only with what eager computes from the same one: the checker hands on what a file
chose, see `mmexport.checker.check.check`.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ..rules.counting import share

CONTINUOUS, CHOICE = False, True
# Of a float32, as a share of it.
ROUNDING = 1e-6


def compare(names: Sequence[str], expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], evidence: Mapping[str, Tensor],
            tolerance: float, clear: float | None) -> dict[str, Any]:
    """Return the share of places that are not eager's choice.

    One is, if its score is that of eager's place of this rank, within the tolerance of the difference between the largest and the
    least score.

    Args:
        evidence: `place_scores` (N, P), eager's own of all places.
        clear: of reduced precision, the tolerance instead.
    """
    scores, places = evidence['place_scores'], actual[names[0]]
    # Of scores that hardly differ, their common part says nothing; what it rounds to does.
    scale = max(float(scores.max() - scores.min()), ROUNDING / (clear or tolerance) * float(scores.abs().max()), 1e-12)
    best = scores.topk(places.shape[1], dim=1).values
    valid = (places >= 0) & (places < scores.shape[1])
    error = (scores.gather(1, places.clamp(0, scores.shape[1] - 1)) - best).abs()
    ranked = places.sort(dim=1).values
    repeated = (ranked[:, 1:] == ranked[:, :-1]).sum()
    wrong = (~valid | (error > (clear or tolerance) * scale)).sum() + repeated
    moved = (places != expected[names[0]]).sum()
    return dict(beyond=float(wrong) / max(places.numel(), 1), max_rel=float(error.max()) / scale,
                metrics=dict(places=places.numel(), places_moved=int(moved)))


def little_change(name: str, one: Mapping[str, Tensor], other: Mapping[str, Tensor], classes: int, tolerance: float,
                  margin: float) -> str | None:
    changed = share(one[name][:1] != other[name][:1])
    return None if changed >= 0.5 else f'only {changed:.0%} of the places change between two inputs (at least 50% required)'
