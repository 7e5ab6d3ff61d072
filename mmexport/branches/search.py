"""Which branches the inputs of a verification decide, and sizes that turn the others."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from torch import Tensor

from .recorder import Key, Run, Site, record_sizes

Shape = tuple[int, int, int]  # N, H, W


@dataclass
class BranchLog:
    """Answers by input.

    Attributes:
        model: what runs an image (N, C, H, W), for sizes that are only looked at.
        channels: of the image.
        runs: what was recorded, by input that is verified; `shapes` has their sizes.
        swept: what was recorded without values, by size.
        accepted: branches (FILE:LINE) that the user answers for.
        refused: branches that a size turned which eager does not take.
    """

    model: Callable[[Tensor], Any]
    channels: int
    runs: dict[str, Run]
    shapes: dict[str, Shape]
    swept: dict[Shape, Run] = field(default_factory=dict)
    accepted: Sequence[str] = ()
    refused: set[Key] = field(default_factory=set)

    def refuse(self, shape: Shape) -> None:
        """Note that eager does not take `shape`, so that nothing turns there."""
        self.refused |= {key for key in self.open_keys('size') if self.turns(key, shape)}
        self.swept[shape] = replace(self.sweep(shape), error='eager does not take this size')

    def sweep(self, shape: Shape) -> Run:
        """Return what is decided at `shape`, running the model without values where it was not run yet."""
        if shape not in self.swept:
            known = {key: seen for run in self.runs.values() for key, seen in {**run.answers, **run.seen}.items() if key[0].kind == 'value'}
            self.swept[shape] = record_sizes(self.model, (shape[0], self.channels, *shape[1:]), known)
        return self.swept[shape]

    @property
    def sites(self) -> set[Site]:
        return {key[0] for run in self.runs.values() for key in run.seen}

    def answers(self, key: Key) -> set[Any]:
        """Return the answers of `key` over all verified inputs."""
        return {run.seen[key][0] for run in self.runs.values() if key in run.seen}

    def varies(self, key: Key) -> bool:
        """Return whether the condition depends on the input at all: `shape[-1] == 2` of a table of points does not."""
        runs = [*self.runs.values(), *self.swept.values()]
        return key[0].kind == 'value' or len({run.seen[key][1] for run in runs if key in run.seen}) > 1

    def open_keys(self, kind: str) -> set[Key]:
        """Return the conditions of `kind` with one answer over all verified inputs though they depend on the input."""
        keys = {key for run in self.runs.values() for key in run.seen}
        unmet = {key for run in self.swept.values() if not run.error for key in run.seen} - keys
        return {key for key in keys | unmet if key[0].kind == kind and not self.is_accepted(key[0])
                and (key in unmet or len(self.answers(key)) == 1 and self.varies(key))}

    def is_accepted(self, site: Site) -> bool:
        return any(f'{site.file}:{site.line}'.endswith(given) for given in self.accepted)

    def turns(self, key: Key, shape: Shape) -> bool:
        """Return whether `key` is answered at `shape` as at no verified input."""
        run = self.sweep(shape)
        return not run.error and key in run.seen and run.seen[key][0] not in self.answers(key)


def search_sizes(log: BranchLog, ranges: Mapping[str, tuple[int, int]], multiple: int, most: int = 40) -> dict[Key, Shape]:
    """Find for each open size branch a small size within `ranges` that turns it; a branch without an entry turned at none that was tried.

    The corners of the ranges are verified inputs already. From a size that turns a condition the axes go, one after the other, as far as
    they can towards the smallest verified input.
    """
    low = tuple(ranges[name][0] if name in ranges else _fixed(log, axis) for axis, name in enumerate(AXES))
    high = tuple(ranges[name][1] if name in ranges else _fixed(log, axis) for axis, name in enumerate(AXES))
    start = min(log.shapes.values(), key=area)
    step = (1, multiple, multiple)
    for candidate in _candidates(low, high, start, step):
        log.sweep(candidate)
    found: dict[Key, Shape] = {}
    for key in sorted(log.open_keys('size'), key=str):
        shape: Shape | None = next((known for known in found.values() if log.turns(key, known)), None)
        if shape is None:
            turned = [known for known in sorted(log.swept, key=area) if log.turns(key, known)]
            if key in log.refused and turned:
                # The smallest of them eager does not take: the largest is the farthest from it.
                shape = turned[-1]
            else:
                shape = _smaller(log, key, turned[0], start, step, most) if turned else _where_equal(log, key, step, most)
        if shape is not None:
            found[key] = shape
    return found


AXES = ('batch', 'height', 'width')
# Sides between the corners: whole windows of 7, 8 and 12 cells.
BETWEEN = ((224, 224), (384, 256), (640, 480))


def _fixed(log: BranchLog, axis: int) -> int:
    return next(iter(log.shapes.values()))[axis]


def _candidates(low: Sequence[int], high: Sequence[int], start: Shape, step: Sequence[int]) -> set[Shape]:
    def fit(value: int, axis: int) -> int:
        return min(max(value // step[axis] * step[axis], low[axis]), high[axis])

    def part(share: float, axis: int) -> int:
        return fit(int(low[axis] + share * (high[axis] - low[axis])), axis)

    inside = [(height, width) for height, width in BETWEEN if fit(height, 1) == height and fit(width, 2) == width]
    return {(start[0], part(share, 1), part(1 - share, 2)) for share in (0.25, 0.5, 0.75)} | {(start[0], *size) for size in inside}


def area(shape: Shape) -> int:
    return shape[0] * shape[1] * shape[2]


def _along(shape: Shape, axis: int, side: int) -> Shape:
    changed = list(shape)
    changed[axis] = side
    return changed[0], changed[1], changed[2]


def _smaller(log: BranchLog, key: Key, shape: Shape, start: Shape, step: Sequence[int], most: int) -> Shape:
    """Bring each axis of `shape` towards `start` while `key` still turns, by bisection."""
    for axis in range(3):
        far, near = shape[axis], start[axis]
        if far <= near or not most or log.turns(key, _along(shape, axis, near)):
            shape = _along(shape, axis, min(near, far))
            continue
        while far - near > max(step[axis], far // 64) and most:
            middle, most = (far + near) // 2 // step[axis] * step[axis], most - 1
            if middle <= near:
                break
            far, near = (middle, near) if log.turns(key, _along(shape, axis, middle)) else (far, middle)
        shape = _along(shape, axis, far)
    return shape


def _where_equal(log: BranchLog, key: Key, step: Sequence[int], most: int) -> Shape | None:
    """Find where two operands meet between two sizes at which the one, then the other is the larger, for == and !=."""
    # The corners of the ranges are among the verified: they differ by one axis each.
    runs = {**{log.shapes[name]: run for name, run in log.runs.items()}, **log.swept}

    def margin(shape: Shape) -> float:
        one, other = (runs.get(shape) or log.sweep(shape)).seen[key][1][:2]
        return float(one - other)

    met = sorted((shape for shape, run in runs.items() if not run.error and key in run.seen), key=area)
    under, over = [shape for shape in met if margin(shape) < 0], [shape for shape in met if margin(shape) > 0]
    for axis in range(3):
        for one, two in product(under, over):
            if [number for number in range(3) if one[number] != two[number]] != [axis]:
                continue
            while abs(one[axis] - two[axis]) > step[axis] and most:
                middle, most = (one[axis] + two[axis]) // 2 // step[axis] * step[axis], most - 1
                shape = _along(one, axis, middle)
                if middle in (one[axis], two[axis]) or key not in log.sweep(shape).seen:
                    break
                if margin(shape) == 0:
                    return shape if log.turns(key, shape) else None
                one, two = (shape, two) if margin(shape) < 0 else (one, shape)
    return None
