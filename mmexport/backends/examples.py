"""Choose the sizes that a program is exported with, and the inputs for them; nothing is computed with the example's content."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ..adapters.specs import FOLLOWING, IMAGE, InputSpec

# Of a picture.
AXIS = {'batch': 0, 'height': 2, 'width': 3}
GENERIC = {0: 5, 2: 480, 3: 544}
# Two sizes that differ by this much stay different at every stride up to it.
STRIDE = 64


def input_specs_of(module: Any) -> tuple[InputSpec, ...]:
    """Return what an adapter takes; of another module (a probe) one picture."""
    specs: tuple[InputSpec, ...] = getattr(module, 'input_specs', (IMAGE,))
    return specs


def inputs_for(module: Any, picture: Tensor) -> tuple[Tensor, ...]:
    """Return the inputs that an adapter takes for a picture; of another module the picture."""
    inputs: tuple[Tensor, ...] = module.inputs_of(picture) if hasattr(module, 'inputs_of') else (picture,)
    return inputs


def open_sizes(inputs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return which of `FOLLOWING` are open in any of the manifest's `inputs`; the picture need not be the first, nor be there."""
    return [name for name in FOLLOWING if any(name in spec['dynamic'] for spec in inputs)]


def generic(example: Tensor, dynamic: Sequence[str], multiple: int = 1) -> Tensor:
    """Return an example that is large enough along the open axes.

    torch.export takes a size of 1 for a constant, also inside: a batch of 1, or the one window of Swin's last stage on a small picture.
    """
    open_axes = {AXIS[name] for name in dynamic}
    shape = [max(int(side), -(-GENERIC[axis] // multiple) * multiple if axis > 1 else GENERIC[axis]) if axis in open_axes else int(side)
             for axis, side in enumerate(example.shape)]
    return example if shape == list(example.shape) else example.new_zeros(shape)


def largest_checked(example: Tensor, dynamic: Sequence[str], ranges: Mapping[str, Sequence[int]], multiple: int) -> Tensor | None:
    """Return an example of about the largest height and width within `ranges`; None where the two cannot differ by `STRIDE`.

    A map that has one row at the generic example has more at a larger one, and the program then refuses the larger one, or a size at
    which a branch of the model goes the other way. Of what the program decides at the largest size that was checked, fewer answers
    change within the ranges.
    """
    sides = {axis: int(ranges[name][1]) if name in dynamic and name in ranges else int(example.shape[axis])
             for name, axis in AXIS.items()}
    sides[0] = 2 if 'batch' in dynamic else sides[0]
    if abs(sides[2] - sides[3]) < STRIDE:
        step = -(-STRIDE // multiple) * multiple
        smaller = min(sides[2], sides[3]) - step
        names = [name for name in ('width', 'height') if name in dynamic and name in ranges and smaller >= ranges[name][0]]
        if not names:
            return None
        sides[AXIS[names[0]]] = smaller
    return example.new_zeros((sides[0], example.shape[1], sides[2], sides[3]))
