"""Find out which picture sizes the unpatched eager model accepts.

A U-Net takes multiples of its stride, a BEiT one size only. Inputs, declared ranges and the guard in the file follow what eager takes: a
check at a size that eager itself refuses proves nothing, and an export must not end because of it.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

MULTIPLES = (1, 2, 4, 8, 16, 32, 64)
# Sides that are tried: each is brought to an odd number of multiples, so that twice the multiple does not divide it.
PROBE = (160, 224)
# No smaller side is tried: below two cells of a stride of 32, deep models have no spatial extent left.
SMALLEST = (64, 96, 128)
# Where those are refused, how near to the smallest side to come: one more run of eager for each halving.
STEP = 32


@dataclass(frozen=True)
class SizeRules:
    """Describe what the sides (H, W) of an input must be.

    Attributes:
        multiple_of: both sides are multiples of it.
        minimum: the smallest side that was tried and taken, both sides at once.
        fixed: only the traced size is taken.
        reason: the error of eager at a size that it refuses, for the report; None where it took the first one that was tried.
    """

    multiple_of: int = 1
    minimum: int = 1
    fixed: bool = False
    reason: str | None = None

    def in_words(self) -> str:
        """Return what both sides must be, as "multiples of 32, at least 160"."""
        return f'multiples of {self.multiple_of}, at least {self.minimum}' if self.multiple_of > 1 else f'sides of at least {self.minimum}'

    def up(self, side: float) -> int:
        """Round `side` up to a side that is taken."""
        return max(-(-int(side) // self.multiple_of) * self.multiple_of, self.minimum)

    def takes(self, height: int, width: int) -> bool:
        """Return whether both sides are multiples of `multiple_of` and large enough; not for models of one size."""
        return not height % self.multiple_of and not width % self.multiple_of and min(height, width) >= self.minimum


def find_size_rules(accepts: Callable[[int, int], str | None], traced: Sequence[int]) -> SizeRules:
    """Find the rules by running eager at a few small sizes.

    Args:
        accepts: runs the unpatched eager model at (height, width); the error in words, or None where it ran.
        traced: the traced (height, width).
    """
    reason = None
    for base in (PROBE, tuple(traced)):
        for multiple in MULTIPLES:
            height, width = (_odd_multiple(side, multiple) for side in base)
            if (height, width) == tuple(traced):
                height += 2 * multiple
            refusal = accepts(height, width)
            if refusal is None:
                if traced[0] % multiple or traced[1] % multiple:
                    # A model with two rules, or one that crops: only what both sizes have in common can be said.
                    continue
                return SizeRules(multiple, _minimum(accepts, multiple, min(height, width), traced), False, reason)
            reason = reason or refusal
    return SizeRules(fixed=True, reason=reason)


def _odd_multiple(side: int, multiple: int) -> int:
    count = max(side // multiple, 3)
    return multiple * (count if count % 2 else count + 1)


def _minimum(accepts: Callable[[int, int], str | None], multiple: int, taken: int, traced: Sequence[int]) -> int:
    """Return the smallest side (both at once) that eager takes, to within `STEP`; `taken` is one that it takes."""
    step = -(-STEP // multiple) * multiple
    refused = 0
    for side in sorted({-(-side // multiple) * multiple for side in SMALLEST}):
        if side >= taken:
            return taken
        if accepts(side, side) is None:
            return side
        refused = side
    if refused < min(traced) < taken and accepts(*traced) is None:
        taken = min(traced)
    while taken - refused > step:
        middle = refused + -(-(taken - refused) // 2 // step) * step
        if accepts(middle, middle) is None:
            taken = middle
        else:
            refused = middle
    return taken
