"""Remove inputs so that the file's ranges exclude sizes of unchecked branches."""
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from .candidates import Shape
from .run import Key
from .search import AXES, BranchLog, Ranges


def inputs_outside(shapes: Mapping[str, Shape], avoid: Collection[Shape], keep: Collection[str], axes: Sequence[int]) -> list[str]:
    """Choose inputs to drop, as few as possible for each size in turn. None if that cannot be done.

    Args:
        shapes: (N, H, W) of the inputs that were checked, by name.
        avoid: sizes that shall lie outside the box that the others span.
        keep: names of those that stay.
        axes: those that are open; each of them keeps more than one size.
    """
    inside = dict(shapes)
    for shape in sorted(avoid):
        if not _inside(shape, _box(inside.values())):
            continue
        sides = [{name: other for name, other in inside.items() if (other[axis] - shape[axis]) * sign > 0}
                 for axis in axes for sign in (1, -1)]
        sides = [side for side in sides if all(name in side for name in keep) and all(
            len({other[axis] for other in side.values()}) > 1 for axis in axes)]
        if not sides:
            return []
        inside = max(sides, key=len)
    return [name for name in shapes if name not in inside]


def give_up(log: BranchLog, names: Collection[str], ranges: Ranges) -> Ranges:
    """Remove the inputs `names` from `log`, and runs outside the ranges of the others; return these ranges."""
    for name in names:
        del log.runs[name], log.shapes[name]
    low, high = _box(log.shapes.values())
    log.swept = {shape: run for shape, run in log.swept.items() if _inside(shape, (low, high))}
    return {name: (low[axis], high[axis]) for axis, name in enumerate(AXES) if name in ranges}


def untried_corners(log: BranchLog, ranges: Ranges) -> list[Shape]:
    """Return the corners of height and width that no input has, at the smallest batch."""
    checked = set(log.shapes.values())
    batch = min(shape[0] for shape in checked)
    sides = [ranges.get(name, (next(iter(checked))[axis],) * 2) for axis, name in enumerate(AXES)]
    return sorted({(batch, height, width) for height in sides[1] for width in sides[2]} - checked)


def still_unresolved(log: BranchLog, turning: Mapping[Key, Shape]) -> dict[Key, Shape]:
    """Return those of `turning` that no verified input turns yet."""
    open_keys = log.open_keys('size')
    return {key: shape for key, shape in turning.items() if key in open_keys and log.turns(key, shape)}


def _box(shapes: Collection[Shape]) -> tuple[Shape, Shape]:
    columns = list(zip(*shapes, strict=True))
    return tuple(map(min, columns)), tuple(map(max, columns))  # type: ignore[return-value]


def _inside(shape: Shape, box: tuple[Shape, Shape]) -> bool:
    return all(low <= side <= high for side, low, high in zip(shape, *box, strict=True))
