"""Move a size towards the place where a condition changes its answer."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from .candidates import Shape, along, area

if TYPE_CHECKING:
    from .run import Key
    from .search import BranchLog

# Pixels by which a side is moved to see how the operands follow: a map of stride 32 changes by one, and farther away than 4 a condition
# behind another one may not be asked.
NEAR = (32, 16, 8, 4)
ROUNDS = 4
# Remainders are looked for over so many sides.
SIDES = 48


def smaller(log: BranchLog, key: Key, shape: Shape, start: Shape, step: Sequence[int], most: int) -> Shape:
    """Bring each axis of `shape` towards `start` while `key` still turns, by bisection."""
    for axis in range(3):
        far, near = shape[axis], start[axis]
        if far <= near or not most or log.turns(key, along(shape, axis, near)):
            shape = along(shape, axis, min(near, far))
            continue
        while far - near > max(step[axis], far // 64) and most:
            middle, most = (far + near) // 2 // step[axis] * step[axis], most - 1
            if middle <= near:
                break
            far, near = (middle, near) if log.turns(key, along(shape, axis, middle)) else (far, middle)
        shape = along(shape, axis, far)
    return shape


def where_equal(log: BranchLog, key: Key, step: Sequence[int], most: int) -> Shape | None:
    """Find where two operands meet between two sizes, for == and !=. At one size the one is larger, at the other the other."""
    met = log.met(key)
    under, over = [shape for shape in met if log.margin(key, shape) < 0], [shape for shape in met if log.margin(key, shape) > 0]
    for axis in range(3):
        for one, two in product(under, over):
            if [number for number in range(3) if one[number] != two[number]] != [axis]:
                continue
            while abs(one[axis] - two[axis]) > step[axis] and most:
                middle, most = (one[axis] + two[axis]) // 2 // step[axis] * step[axis], most - 1
                shape = along(one, axis, middle)
                if middle in (one[axis], two[axis]) or key not in log.sweep(shape).conditions:
                    break
                if log.margin(key, shape) == 0:
                    return shape if log.turns(key, shape) else None
                one, two = (shape, two) if log.margin(key, shape) < 0 else (one, shape)
    return None


def where_crossing(log: BranchLog, key: Key, low: Sequence[int], high: Sequence[int], step: Sequence[int]) -> Shape | None:
    """Find a size that turns `key` by the secant method: a comparison behind another one is met on one side of its own threshold only.

    ``46 < h < 50`` asks its second question beyond 46 alone; from two sizes at which it was asked, the third is where the operands would
    be equal.
    """
    met = log.met(key)
    for one, axis in product(dict.fromkeys([*met[:1], *met[-1:]]), range(3)):
        near = dict.fromkeys(max(pixels // step[axis], 1) * step[axis] for pixels in NEAR) if axis else [1]
        for side in (one[axis] + sign * distance for distance in near for sign in (-1, 1)):
            if not low[axis] <= side <= high[axis]:
                continue
            two = along(one, axis, side)
            if log.turns(key, two):
                return two
            if key in log.sweep(two).conditions and not log.sweep(two).error and log.margin(key, one) != log.margin(key, two):
                crossing = _secant(log, key, one, two, axis, low, high, step)
                if crossing is not None:
                    return crossing
    return None


def _secant(log: BranchLog, key: Key, one: Shape, two: Shape, axis: int, low: Sequence[int], high: Sequence[int],
            step: Sequence[int]) -> Shape | None:
    for _ in range(ROUNDS):
        rise = log.margin(key, one) - log.margin(key, two)
        if not rise:
            return None
        root = one[axis] - log.margin(key, one) * (one[axis] - two[axis]) / rise
        sides = sorted({min(max(int(root + part * (one[axis] - two[axis]) / 4) // step[axis] * step[axis], low[axis]), high[axis])
                        for part in (0, 1, -1)} | {min(max(int(root) // step[axis] * step[axis] + step[axis], low[axis]), high[axis])})
        candidates = [along(one, axis, side) for side in sides]
        for shape in candidates:
            if log.turns(key, shape):
                return shape
        runs = {shape: log.sweep(shape) for shape in candidates if shape not in (one, two)}
        reached = [shape for shape, run in runs.items() if key in run.conditions and not run.error]
        if not reached:
            return None
        one, two = min(reached, key=lambda shape: abs(log.margin(key, shape))), one
    return None


def where_periodic(log: BranchLog, key: Key, low: Sequence[int], high: Sequence[int], step: Sequence[int]) -> Shape | None:
    """Find a size that turns a condition on a remainder. Sides are tried in steps of one, after a stride of 4."""
    if not any(sign in key[0].text for sign in ('%', '&', 'mod', '^')):
        return None
    start = min(log.shapes.values(), key=area)
    for axis in (1, 2):
        stride = max(4 // step[axis], 1) * step[axis]
        for side in range(start[axis] + stride, min(high[axis], start[axis] + SIDES * stride) + 1, stride):
            if log.turns(key, along(start, axis, side)):
                return along(start, axis, side)
    return None
