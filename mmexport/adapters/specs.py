"""Describe the inputs and outputs of a lowered file, as in its manifest."""
from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

# Axes whose size follows the picture; ``export.inputs.dynamic`` names those that stay open.
FOLLOWING = ('batch', 'height', 'width')
# The default tolerance, in units of the scale of the logits; decisions closer than twice that are near.
LOGIT_TOLERANCE = 1e-4
# By how much a probability changes with its logit at most.
STEEPEST = 0.25


@dataclass(frozen=True)
class InputSpec:
    """Describe one input.

    Axes that are named as one of `FOLLOWING` are open where the picture's are. Of the others, those in `ranges` are open from the smallest
    to the largest size there (frames of a clip), if `Adapter.inputs_of` varies them; the rest have one size.
    """

    name: str
    axes: tuple[str, ...]
    dtype: str = 'float32'
    ranges: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def open_axes(self, dynamic: Collection[str]) -> dict[str, int]:
        """Return the index of each axis that is open, by its name."""
        return {name: index for index, name in enumerate(self.axes) if name in self.ranges or (name in FOLLOWING and name in dynamic)}


# The default input: one image.
IMAGE = InputSpec('image', ('batch', 'channel', 'height', 'width'))


@dataclass(frozen=True)
class OutputSpec:
    """Describe one output.

    `kind` names a module of `mmexport.checker.kinds`, or of `Adapter.kinds`, with the rules of comparison: ``queries``, ``pixels`` and
    ``map`` are continuous, with that as the unit in which jumps are counted; ``labels`` and ``panoptic`` are label maps; ``instance``
    belongs to a group of rows.
    """

    name: str
    dtype: str
    axes: tuple[str, ...]
    kind: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def mask_specs() -> tuple[OutputSpec, OutputSpec]:
    """Return the specs of the raw outputs of a mask classifier, semantic or panoptic."""
    return (OutputSpec('cls_logits', 'float32', ('batch', 'query', 'class'), 'queries'),
            OutputSpec('mask_logits', 'float32', ('batch', 'query', 'h', 'w'), 'queries'))
