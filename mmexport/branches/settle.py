"""Add inputs to a verification until every branch that an input can turn is turned."""
from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from ..checking.samples import Sample
from ..inputs.synthetic import PLAIN
from .findings import Branches, judge_branches
from .recorder import Key, Run
from .search import BranchLog, Shape, area, search_sizes

ROUNDS, MOST = 4, 12

# Runs eager on an input (its name, the image), and returns the sample with what was recorded; None where eager refuses it.
Add = Callable[[str, Tensor], tuple[Sample, Run] | None]


def settle(log: BranchLog, ranges: Mapping[str, tuple[int, int]], multiple: int, scene: Callable[[Shape], Tensor],
           plain: Callable[[str], Tensor], add: Add, note: str | None = None) -> tuple[Branches, list[Sample]]:
    """Return the branches of the model, and samples at the sizes and of the pictures that turn those which no input turned so far.

    Args:
        log: with the runs of all inputs so far; gets those of new ones.
        ranges: sizes within which to look, by open axis.
        multiple: what the sides must be multiples of.
        scene: makes a picture of a size, `plain` one without content by its name.
        note: why nothing was recorded; then there is nothing to find.
    """
    if note is not None:
        return Branches(note=note), []
    samples: list[Sample] = []
    refused: set[Shape] = set()
    unresolved: dict[Key, Shape] = {}
    for _ in range(ROUNDS):
        unresolved = {key: shape for key, shape in search_sizes(log, ranges, multiple).items() if shape not in refused}
        fresh = sorted(set(unresolved.values()), key=area)
        if not fresh or len(samples) >= MOST:
            break
        for shape in fresh:
            if any(log.turns(key, shape) for key in log.open_keys('size')):
                name = 'branch ' + 'x'.join(map(str, shape))
                made = add(name, scene(shape))
                if made is None:
                    refused.add(shape)
                    continue
                samples.append(made[0])
                log.runs[name], log.shapes[name] = made[1], shape
    samples += _plain(log, plain, add)
    return judge_branches(log, [key for key in unresolved if key in log.open_keys('size')]), samples


def _plain(log: BranchLog, plain: Callable[[str], Tensor], add: Add) -> list[Sample]:
    """Samples of the pictures without content that turn a branch on a value."""
    samples = []
    for kind in PLAIN:
        keys = log.open_keys('value')
        made = add(kind, plain(kind)) if keys else None
        if made is None:
            continue
        if any(key in made[1].seen and made[1].seen[key][0] not in log.answers(key) for key in keys):
            samples.append(made[0])
            log.runs[kind], log.shapes[kind] = made[1], (made[0].image.shape[0], *made[0].image.shape[2:])  # type: ignore[assignment]
    return samples
