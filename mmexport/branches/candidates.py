"""Choose the sizes at which a model is run to find its branches."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import product

Shape = tuple[int, int, int]  # N, H, W
# Sides between the corners: whole windows of 7, 8 and 12 cells.
BETWEEN = ((224, 224), (384, 256), (640, 480))
# Batches from the smallest to the largest, as far as this.
BATCHES = 16
# Steps from the smallest size: maps of every stride up to 32 get an even and an odd number of rows.
STEPS = (1, 2, 4, 8, 16, 32)


def candidates(low: Sequence[int], high: Sequence[int], start: Shape, step: Sequence[int], closely: bool = True) -> list[Shape]:
    """Return sizes between `low` and `high` (N, H, W), smallest first: corners, all batches, a diagonal, and neighbours of `start`.

    Args:
        closely: else the largest, a second batch and the diagonal: a look costs a second on a model of many modules.
    """
    def fit(value: int, axis: int) -> int:
        return min(max(value // step[axis] * step[axis], low[axis]), high[axis])

    def part(share: float, axis: int) -> int:
        return fit(int(low[axis] + share * (high[axis] - low[axis])), axis)

    sizes: set[Shape] = {(high[0], high[1], high[2]), (min(low[0] + 1, high[0]), *start[1:])}
    sizes |= {(start[0], part(share, 1), part(1 - share, 2)) for share in (0.25, 0.5, 0.75)}
    sizes |= {(start[0], height, width) for height, width in BETWEEN if fit(height, 1) == height and fit(width, 2) == width}
    if not closely:
        return sorted(sizes, key=area)
    sizes |= set(product(*zip(low, high, strict=True)))  # type: ignore[arg-type]
    sizes |= {(batch, *start[1:]) for batch in range(low[0], min(high[0], low[0] + BATCHES - 1) + 1)}
    sizes |= {along(start, axis, fit(start[axis] + count * step[axis], axis)) for axis in (1, 2) for count in STEPS}
    return sorted(sizes, key=area)


def area(shape: Shape) -> int:
    return shape[0] * shape[1] * shape[2]


def along(shape: Shape, axis: int, side: int) -> Shape:
    """Return `shape` with `side` on `axis`."""
    changed = list(shape)
    changed[axis] = side
    return changed[0], changed[1], changed[2]
