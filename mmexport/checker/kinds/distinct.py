"""Compare choices of queries: among places (N, Q), and after each layer (N, L, Q), of those that resemble no better one."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ..rules.counting import share
from ..rules.distinct import Boxes, out_of_order, wrong_choices

CONTINUOUS, CHOICE, ROW = False, True, 'choices of queries'
PLACES, DISTINCT = 'places', 'distinct'


def compare(names: Sequence[str], expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], evidence: Mapping[str, Tensor],
            tolerance: float, clear: float | None) -> dict[str, Any]:
    """Return the share of choices that are wrong by eager's scores and boxes.

    A choice is judged as long as those before it are eager's own: others change the boxes that it is made by. Right choices that are not
    eager's are followed, see `mmexport.checker.check`, and then those after them are judged.

    Args:
        names: `places`, the best first, -1 where fewer are distinct, and `distinct`, 1 where a query stays.
        evidence: eager's own `place_scores` (N, P) and `place_boxes` (N, P, 4), `query_scores` (N, L, Q) and `query_boxes`
            (N, L, Q, 4); scores are below zero of those that take no part. `overlap` (1,): above it one of two goes.
        clear: of reduced precision, the tolerance instead.
    """
    threshold, limit, wrong = float(evidence['overlap']), clear or tolerance, 0
    moved = sum(int((actual[name] != expected[name]).sum()) for name in names)
    for image, places in enumerate(actual[PLACES]):
        wrong += _wrong_places(Boxes(evidence['place_scores'][image], evidence['place_boxes'][image], threshold, limit), places)
        same = places.equal(expected[PLACES][image])
        for layer, stays in enumerate(actual[DISTINCT][image]):
            if not same:
                break
            seen = Boxes(evidence['query_scores'][image, layer], evidence['query_boxes'][image, layer], threshold, limit)
            wrong += wrong_choices(seen, stays.nonzero()[:, 0], False) if bool(((stays == 0) | (stays == 1)).all()) else len(stays)
            same = stays.equal(expected[DISTINCT][image, layer])
    count = sum(actual[name].numel() for name in names)
    return dict(beyond=min(wrong / max(count, 1), 1.0), metrics=dict(choices=count, choices_moved=moved))


def _wrong_places(seen: Boxes, places: Tensor) -> int:
    kept = places[places >= 0]
    valid = bool((places[len(kept):] == -1).all()) and len(kept.unique()) == len(kept) and bool((kept < len(seen.scores)).all())
    return wrong_choices(seen, kept, len(kept) == len(places)) + out_of_order(seen, kept) if valid else len(places)


def little_change(name: str, one: Mapping[str, Tensor], other: Mapping[str, Tensor], classes: int, tolerance: float,
                  margin: float) -> str | None:
    """Return why the places of two inputs are too much alike, or None. All queries may stay, on every input."""
    changed = share(one[name][:1] != other[name][:1])
    if name != PLACES or changed >= 0.5:
        return None
    return f'only {changed:.0%} of the places change between two inputs (at least 50% required)'
