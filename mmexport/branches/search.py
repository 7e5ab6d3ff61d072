"""Collect the branches that the inputs decide, and search sizes that turn the others."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from .candidates import Shape, area, candidates
from .narrowing import smaller, where_crossing, where_equal, where_periodic
from .recorder import record_picture, record_sizes
from .run import Key, Run, Site

AXES = ('batch', 'height', 'width')
Ranges = Mapping[str, tuple[int, int]]
# Where a model cannot run without values, sizes up to this many numbers are looked at on pictures, and as many of them.
PICTURE, PICTURES = 3 * 200_000, 40
# Sizes that are looked at in one search, beyond which no more are.
SWEEPS = 120


@dataclass
class BranchLog:
    """Collect the answers of branches by input.

    Attributes:
        model: what runs an image (N, C, H, W), for sizes that are only looked at.
        channels: of the image.
        runs: what was recorded, by input that is verified; `shapes` has their sizes.
        swept: what was recorded without values, by size.
        accepted: branches (FILE:LINE) that the user answers for.
        refused: branches that a size turned which eager does not take.
        scene: makes a picture of a size, for a model that cannot run without values.
        why_pictures: what it raised then; None where it can, or was not asked.
        judges: tells which conditions are looked at; those of the network are known when its post-processing is.
    """

    model: Callable[[Tensor], Any]
    channels: int
    runs: dict[str, Run]
    shapes: dict[str, Shape]
    swept: dict[Shape, Run] = field(default_factory=dict)
    accepted: Sequence[str] = ()
    refused: set[Key] = field(default_factory=set)
    scene: Callable[[Shape, int], Tensor] | None = None
    why_pictures: str | None = None
    judges: Callable[[Site], bool] = lambda site: True
    _without_values_works: bool | None = None

    def refuse(self, shape: Shape) -> None:
        """Note that eager does not take `shape`, so that nothing turns there."""
        self.refused |= {key for key in self.open_keys('size') if self.turns(key, shape)}
        self.swept[shape] = replace(self.sweep(shape), error='eager does not take this size')

    def sweep(self, shape: Shape) -> Run:
        """Return what is decided at `shape`, running the model where it was not run yet: without values if it can run so."""
        if shape not in self.swept:
            self.swept[shape] = self._on_picture(shape) if not self._runs_without_values() else self._without_values(shape)
        return self.swept[shape]

    def _runs_without_values(self) -> bool:
        """Return whether the model runs without values at a known size."""
        if self._without_values_works is None:
            error = self._without_values(min(self.shapes.values(), key=area)).error
            self._without_values_works, self.why_pictures = not error, error or None
        return self._without_values_works

    def _without_values(self, shape: Shape) -> Run:
        value_answers = {key: answer for run in self.runs.values() for key, answer in {**run.answers, **run.conditions}.items()
                         if key[0].kind == 'value'}
        return record_sizes(self.model, (shape[0], self.channels, *shape[1:]), value_answers)

    def _on_picture(self, shape: Shape) -> Run:
        looked = sum(not run.error for run in self.swept.values())
        if self.scene is None or area(shape) * self.channels > PICTURE or looked >= PICTURES:
            return Run(error='too large to be looked at')
        return record_picture(self.model, self.scene(shape, 0))

    @property
    def sites(self) -> set[Site]:
        return {key[0] for run in (*self.runs.values(), *self.swept.values()) for key in run.conditions if self.judges(key[0])}

    def answers(self, key: Key) -> set[Any]:
        """Return the answers of `key` over all verified inputs."""
        return {run.conditions[key][0] for run in self.runs.values() if key in run.conditions}

    def met(self, key: Key) -> list[Shape]:
        """Return the sizes at which `key` was asked, smallest first; the corners of the ranges are among the verified."""
        return sorted((shape for shape, run in self._by_shape().items() if not run.error and key in run.conditions), key=area)

    def margin(self, key: Key, shape: Shape) -> float:
        """Return the first operand of `key` minus the second at `shape`."""
        one, other = (self._by_shape().get(shape) or self.sweep(shape)).conditions[key][1][:2]
        return float(one - other)

    def _by_shape(self) -> dict[Shape, Run]:
        return {**self.swept, **{self.shapes[name]: run for name, run in self.runs.items()}}

    def varies(self, key: Key) -> bool:
        """Return whether the condition may depend on the input: `shape[-1] == 2` of a table of points does not.

        A condition behind another one may have been asked on few sizes; its operands are constant only where they were the same along
        every axis that varies.
        """
        runs = [*self.runs.values(), *self.swept.values()]
        if key[0].kind == 'value' or len({run.conditions[key][1] for run in runs if key in run.conditions}) > 1:
            return True
        met = self.met(key)
        return any(len({shape[axis] for shape in self.shapes.values()}) > 1 and len({shape[axis] for shape in met}) == 1
                   for axis in range(3))

    def open_keys(self, kind: str) -> set[Key]:
        """Return the conditions of `kind` that have one answer over all verified inputs. Only those that depend on the input count."""
        keys = {key for run in self.runs.values() for key in run.conditions}
        unmet = {key for run in self.swept.values() if not run.error for key in run.conditions} - keys
        return {key for key in keys | unmet if key[0].kind == kind and self.judges(key[0]) and not self.is_accepted(key[0])
                and (key in unmet or len(self.answers(key)) == 1 and self.varies(key))}

    def is_accepted(self, site: Site) -> bool:
        return any(is_place(place, site) for place in self.accepted)

    def turns(self, key: Key, shape: Shape) -> bool:
        """Return whether `key` is answered at `shape` as at no verified input."""
        run = self.sweep(shape)
        return not run.error and key in run.conditions and run.conditions[key][0] not in self.answers(key)


def is_place(place: str, site: Site) -> bool:
    """Return whether `place` (FILE:LINE) is where `site` is. FILE may be given with any number of its last folders."""
    file, _, line = place.rpartition(':')
    parts = Path(file).parts
    return bool(parts) and line == str(site.line) and Path(site.file).parts[-len(parts):] == parts


def search_sizes(log: BranchLog, ranges: Ranges, multiple: int, most: int = 40) -> dict[Key, Shape]:
    """Find for each open size branch a small size within `ranges` that turns it; a branch without an entry turned at none that was tried.

    From a size that turns a condition the axes go, one after the other, as far as they can towards the smallest verified input.
    """
    low = tuple(ranges[name][0] if name in ranges else _fixed(log, axis) for axis, name in enumerate(AXES))
    high = tuple(ranges[name][1] if name in ranges else _fixed(log, axis) for axis, name in enumerate(AXES))
    start = min(log.shapes.values(), key=area)
    step = (1, multiple, multiple)
    # User code is searched at more sizes than code of installed packages, which was exported before.
    for candidate in candidates(low, high, start, step, closely=any(site.in_user_code for site in log.sites)):
        log.sweep(candidate)
    turning: dict[Key, Shape] = {}
    # Modules in a loop ask the same questions: what was looked for once without result is not looked for again.
    fruitless: set[Any] = set()
    for key in sorted(log.open_keys('size'), key=str):
        shape: Shape | None = next((known for known in turning.values() if log.turns(key, known)), None)
        if shape is None:
            turned = [known for known in sorted(log.swept, key=area) if log.turns(key, known)]
            if key in log.refused and turned:
                # Eager refuses the smallest size, so that the largest is taken.
                shape = turned[-1]
            elif turned:
                shape = smaller(log, key, turned[0], start, step, most)
            else:
                met = log.met(key)
                question = key[0], tuple((one, log.margin(key, one)) for one in (*met[:1], *met[-1:]))
                if question not in fruitless and len(log.swept) < SWEEPS:
                    shape = where_equal(log, key, step, most)
                    if shape is None and key[0].in_user_code:
                        shape = where_crossing(log, key, low, high, step) or where_periodic(log, key, low, high, step)
                    if shape is None:
                        fruitless.add(question)
        if shape is not None:
            turning[key] = shape
    return turning


def _fixed(log: BranchLog, axis: int) -> int:
    return next(iter(log.shapes.values()))[axis]
