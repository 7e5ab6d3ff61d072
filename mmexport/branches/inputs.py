"""Add inputs until both sides of every branch that an input can reach have run."""
from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from torch import Tensor

from ..checker.samples import Sample
from ..inputs.synthetic import PLAIN
from .candidates import Shape, area
from .findings import Branches, judge_branches
from .run import Key, Run
from .search import AXES, PICTURE, BranchLog, Ranges, search_sizes
from .shrinking import give_up, inputs_outside, still_unresolved, untried_corners

ROUNDS, MOST = 4, 12
# Pictures of one size, until eager is sure of its decisions on one.
PICTURES = 3


class InsufficientMargin(Exception):
    """Report that eager's margins on this picture are too small to compare; another of the same size may have larger ones."""


# Runs eager on an input (its name, the image), and returns the sample with what was recorded; None where eager refuses the size.
Add = Callable[[str, Tensor], tuple[Sample, Run] | None]


@dataclass
class BranchInputs:
    """Hold the result of `inputs_for_branches`.

    Attributes:
        branches: of the model.
        samples: inputs that turn those which no input turned so far.
        given_up: names of earlier inputs that lie outside the ranges now, because a branch could not be checked there.
    """

    branches: Branches
    samples: list[Sample] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)


def inputs_for_branches(log: BranchLog, ranges: Ranges, multiple: int, scene: Callable[[Shape, int], Tensor],
           plain: Callable[[str, Shape], Tensor], add: Add, keep: Collection[str], note: str | None = None,
           every_picture: bool = False) -> BranchInputs:
    """Find the model's branches, and make inputs that turn those not turned so far. They have the sizes and pictures given.

    Where a size turns one at which nothing can be compared, or there are too many of them, the ranges shrink until they leave it out.

    Args:
        log: with the runs of all inputs so far; gets those of new ones.
        ranges: sizes within which to look, by open axis.
        multiple: what the sides must be multiples of.
        scene: makes a picture of a size and a seed, `plain` one without content by its name and of a size.
        keep: names of the inputs that the ranges must contain.
        note: why nothing was recorded; then there is nothing to find.
        every_picture: add all plain pictures, also those that turn nothing.
    """
    if note is not None:
        return BranchInputs(Branches(note=f'not recorded: {note}'))
    log.scene = scene
    search = _Search(log, multiple, scene, add)
    unresolved = search.turn(ranges)
    given_up: list[str] = []
    avoided: set[Key] = set()
    for _ in range(ROUNDS):
        axes = [axis for axis, name in enumerate(AXES) if name in ranges]
        remaining = still_unresolved(log, unresolved)
        outside = inputs_outside(log.shapes, remaining.values(), keep, axes)
        if not remaining or not outside:
            break
        avoided |= set(remaining)
        given_up += outside
        ranges = give_up(log, outside, ranges)
        for corner in untried_corners(log, ranges):
            search.check(corner, f'corner {corner[1]}x{corner[2]}')
        unresolved = search.turn(ranges)
    search.samples += _plain(log, plain, add, every_picture)
    looked = log.why_pictures and (f'sizes were searched with pictures of up to {PICTURE // log.channels} pixels, for shapes alone cannot '
                                   f'be followed through a model that reads values ({_reader(log.why_pictures)})')
    remaining = still_unresolved(log, unresolved)
    samples = [sample for sample in search.samples if sample.name not in given_up]
    return BranchInputs(judge_branches(log, remaining, looked, avoided - set(remaining)), samples,
                   [name for name in given_up if all(sample.name != name for sample in search.samples)])


def _reader(error: str) -> str:
    """Return the operator that reads values, where torch's message names it; else the start of the message."""
    named = re.search(r'torch\.(\w+)\(\)', error)
    return named.group(0) if named else error[:80]


@dataclass
class _Search:
    """Add an input for each size that turns an open branch.

    Attributes:
        unclear: sizes at which nothing could be compared.
    """

    log: BranchLog
    multiple: int
    scene: Callable[[Shape, int], Tensor]
    add: Add
    samples: list[Sample] = field(default_factory=list)
    unclear: set[Shape] = field(default_factory=set)

    def turn(self, ranges: Ranges) -> dict[Key, Shape]:
        """Return by branch a size within `ranges` that turns it; where an input was added for it, nothing turns it any more."""
        turning: dict[Key, Shape] = {}
        for _ in range(ROUNDS):
            turning = search_sizes(self.log, ranges, self.multiple)
            new_shapes = sorted(set(turning.values()) - self.unclear, key=area)
            if not new_shapes or len(self.samples) >= MOST:
                break
            for shape in new_shapes:
                if len(self.samples) < MOST and any(self.log.turns(key, shape) for key in self.log.open_keys('size')):
                    self.check(shape, 'branch ' + 'x'.join(map(str, shape)))
        return turning

    def check(self, shape: Shape, name: str) -> None:
        try:
            sample = _first_clear(self.add, name, shape, self.scene)
        except InsufficientMargin:
            self.unclear.add(shape)
            # Whether it turns a branch must be known all the same.
            self.log.sweep(shape)
            return
        if sample is None:
            # A size that eager refuses needs no check; the next round looks for another one.
            self.log.refuse(shape)
            return
        self.samples.append(sample[0])
        self.log.runs[name], self.log.shapes[name] = sample[1], shape


def _first_clear(add: Add, name: str, shape: Shape, scene: Callable[[Shape, int], Tensor]) -> tuple[Sample, Run] | None:
    for seed in range(PICTURES):
        try:
            return add(name, scene(shape, seed))
        except InsufficientMargin:
            if seed == PICTURES - 1:
                raise
    return None


def _plain(log: BranchLog, plain: Callable[[str, Shape], Tensor], add: Add, every: bool) -> list[Sample]:
    """Return samples of plain pictures that turn a branch on a value. They have the smallest size that is checked.

    Args:
        every: return all of them: a decision of numpy, or of a plain number, is not recorded.
    """
    samples = []
    small = min(log.shapes.values(), key=lambda shape: shape[1] * shape[2])
    for kind in PLAIN:
        keys = log.open_keys('value')
        try:
            made = add(kind, plain(kind, small)) if keys or every else None
        except InsufficientMargin:
            continue
        if made is None:
            continue
        if every or any(key in made[1].conditions and made[1].conditions[key][0] not in log.answers(key) for key in keys):
            samples.append(made[0])
            log.runs[kind], log.shapes[kind] = made[1], (made[0].image.shape[0], *made[0].image.shape[2:])  # type: ignore[assignment]
    return samples
