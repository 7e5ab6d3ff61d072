"""Make inputs on which classes are predicted that no other input shows.

A comparison of decisions says something where the decisions of the model vary. A good model of rare objects finds nothing in a synthetic
scene, so scenes are changed a little, by signed gradient steps on the unpatched eager model, until it decides for other classes.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..adapters import Adapter
from ..adapters.objectives import Objective
from ..errors import last_line
from .size_rules import SizeRules

STEPS, COUNT = 16, 4
# The largest side of such an input, unless the model takes one size only.
SIDE = 192
# Where the model takes one large size only, at least so many steps of one input.
FEWEST = 6
# Steps without a better iterate, once there is one.
PATIENCE = 3
# Of the scene's standard deviation; no element moves further.
BOUND = 0.5
# The sum of the lengths of all steps, in units of `BOUND`; their length decreases linearly to zero.
TRAVEL = 2.0
# What a model raises that cannot be differentiated, or not at this size.
FAILURES = (RuntimeError, ValueError, TypeError, AssertionError, IndexError, AttributeError)


@dataclass(frozen=True)
class Decisive:
    """Hold an input and the classes that win on it and on its scene; without an image, why there is none."""

    image: Tensor | None
    before: frozenset[int]
    after: frozenset[int]
    steps: int
    reason: str = ''


def decisive_inputs(adapter: Adapter, scenes: Iterable[Tensor], decided: Iterable[int] = (), count: int = COUNT,
                    steps: int = STEPS) -> list[Decisive]:
    """Make up to `count` inputs aimed at classes that are not decided, one a scene. `decided` and earlier inputs have the others.

    Those without an image are listed as well, for the report.
    """
    known, made = set(decided), []
    for number, scene in zip(range(count), scenes, strict=False):
        if len(known) >= adapter.class_count:
            break
        made.append(decisive_input(adapter, scene, known, steps, seed=number))
        if made[-1].image is None or made[-1].after <= known:
            # Further scenes rarely add classes, and each costs as many backward passes.
            break
        known |= made[-1].after
    return made


def decisive_input(adapter: Adapter, scene: Tensor, decided: Iterable[int] = (), steps: int = STEPS, seed: int = 0) -> Decisive:
    """Take signed gradient steps from `scene` (N, C, H, W) towards classes not in `decided`; the best of the iterates is the input.

    One forward pass a step both judges an iterate and gives the gradient; weights and their gradients stay as they are.
    """
    generator = torch.Generator().manual_seed(seed)
    bound = BOUND * float(scene.std())
    image = scene.detach().clone()
    objective: Objective | None = None
    before = after = frozenset[int]()
    best, best_rank, step, better = None, (0, 0), 0, 0
    target_classes = set(range(adapter.class_count)) - set(decided)
    if not target_classes:
        return Decisive(None, before, after, step, 'every class is decided already')
    try:
        for step in range(steps + 1):
            image.requires_grad_()
            with torch.enable_grad():
                normal, *others = adapter.network_inputs(image)
                raw = adapter.raw(normal, *others)
            with torch.no_grad():
                classes = adapter.decided(raw, normal)
                before = before if step else classes
                objective = objective or adapter.make_objective(tuple(part.detach() for part in raw), normal, target_classes, generator)
            rank = (len(classes & target_classes), len(classes))
            if step and rank > best_rank and len(classes) >= len(before) + (not rank[0]):
                best, best_rank, after = image.detach().clone(), rank, classes
            better = step if step and best_rank == rank and after == classes else better
            if step == steps or (best is not None and (target_classes <= after or step - better >= PATIENCE)):
                break
            with torch.enable_grad():
                gradient, = torch.autograd.grad(objective(raw, normal), image)
            moved = image.detach() - bound * TRAVEL * 2 / steps * (1 - step / steps) * gradient.sign()
            image = moved.clamp(scene - bound, scene + bound)
            image = image.clamp(0, 255) if adapter.preprocess.inside else image
    except FAILURES as exc:  # A model that cannot be differentiated has no such inputs; the reason is in the report.
        if best is None:
            return Decisive(None, before, after, step, f'{type(exc).__name__}: {last_line(exc)}')
    reason = '' if best is not None else f'no step decided a wanted class, or more, without falling below the {len(before)} of the scene'
    return Decisive(best, before, after, step, reason)


def effort(height: int, width: int) -> tuple[int, int]:
    """Return how many inputs of this size to make, and in how many steps: about the time of `COUNT` inputs of `SIDE` pixels a side."""
    if height * width <= 2 * SIDE ** 2:
        return COUNT, STEPS
    passes = int(COUNT * STEPS * SIDE ** 2 / (height * width))
    steps = max(FEWEST, min(STEPS, passes))
    return max(1, passes // steps), steps


def decisive_size(shape: Sequence[int], rules: SizeRules) -> tuple[int, int]:
    """Return height and width of such inputs for a traced `shape` (N, C, H, W)."""
    if rules.fixed:
        return int(shape[2]), int(shape[3])
    return rules.up(min(SIDE, shape[2])), rules.up(min(SIDE, shape[3]))
