"""Add inputs to a verification until every branch that an input can turn is turned."""
from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from ..checking.samples import Sample
from ..inputs.synthetic import PLAIN
from .candidates import Shape, area
from .findings import Branches, judge_branches
from .recorder import Key, Run
from .search import PICTURE, BranchLog, search_sizes

ROUNDS, MOST = 4, 12
# Pictures of one size, until eager is sure of its decisions on one.
PICTURES = 3


class Unclear(Exception):
    """Eager is not sure enough of its decisions on this picture for a comparison; another of the same size may do."""


# Runs eager on an input (its name, the image), and returns the sample with what was recorded; None where eager refuses the size.
Add = Callable[[str, Tensor], tuple[Sample, Run] | None]


def settle(log: BranchLog, ranges: Mapping[str, tuple[int, int]], multiple: int, scene: Callable[[Shape, int], Tensor],
           plain: Callable[[str], Tensor], add: Add, note: str | None = None) -> tuple[Branches, list[Sample]]:
    """Return the branches of the model, and samples at the sizes and of the pictures that turn those which no input turned so far.

    Args:
        log: with the runs of all inputs so far; gets those of new ones.
        ranges: sizes within which to look, by open axis.
        multiple: what the sides must be multiples of.
        scene: makes a picture of a size and a seed, `plain` one without content by its name.
        note: why nothing was recorded; then there is nothing to find.
    """
    if note is not None:
        return Branches(note=f'not recorded: {note}'), []
    log.scene = scene
    samples: list[Sample] = []
    # Of a size at which nothing could be compared; its branches stay unresolved.
    unclear: set[Shape] = set()
    unresolved: dict[Key, Shape] = {}
    for _ in range(ROUNDS):
        unresolved = search_sizes(log, ranges, multiple)
        fresh = sorted(set(unresolved.values()) - unclear, key=area)
        if not fresh or len(samples) >= MOST:
            break
        for shape in fresh:
            if len(samples) < MOST and any(log.turns(key, shape) for key in log.open_keys('size')):
                name = 'branch ' + 'x'.join(map(str, shape))
                try:
                    made = _first_clear(add, name, shape, scene)
                except Unclear:
                    unclear.add(shape)
                    continue
                if made is None:
                    # At a size that eager does not take nothing can go wrong; the next round looks for another one.
                    log.refuse(shape)
                    continue
                samples.append(made[0])
                log.runs[name], log.shapes[name] = made[1], shape
    samples += _plain(log, plain, add)
    left = log.open_keys('size')
    looked = log.why_pictures and (f'sizes were looked at on pictures of up to {PICTURE // log.channels} pixels, for without values the '
                                   f'model raises {log.why_pictures}')
    return judge_branches(log, [key for key, shape in unresolved.items() if key in left and log.turns(key, shape)], looked), samples


def _first_clear(add: Add, name: str, shape: Shape, scene: Callable[[Shape, int], Tensor]) -> tuple[Sample, Run] | None:
    for seed in range(PICTURES):
        try:
            return add(name, scene(shape, seed))
        except Unclear:
            if seed == PICTURES - 1:
                raise
    return None


def _plain(log: BranchLog, plain: Callable[[str], Tensor], add: Add) -> list[Sample]:
    """Samples of the pictures without content that turn a branch on a value."""
    samples = []
    for kind in PLAIN:
        keys = log.open_keys('value')
        try:
            made = add(kind, plain(kind)) if keys else None
        except Unclear:
            continue
        if made is None:
            continue
        if any(key in made[1].seen and made[1].seen[key][0] not in log.answers(key) for key in keys):
            samples.append(made[0])
            log.runs[kind], log.shapes[kind] = made[1], (made[0].image.shape[0], *made[0].image.shape[2:])  # type: ignore[assignment]
    return samples
