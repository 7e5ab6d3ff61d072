"""Isolate a module of a model: tensors in, tensors out, other arguments fixed."""
from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from ..adapters import Adapter
from ..compat.pytree import tree_flatten, tree_unflatten
from .calls import Recorded, list_calls, record, tensors_of

# Types of arguments that are taken as constant over sizes if they are equal at two sizes.
_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device)


class Part(nn.Module):
    """Wrap `module` as a function of the tensors of a recorded call.

    Args:
        again: the same call for another picture: which axes of `inputs` differ from it is then `moving`, and its tensors are `others`.
    """

    def __init__(self, module: nn.Module, recorded: Recorded, again: Recorded | None = None) -> None:
        super().__init__()
        self.moving = moving_axes(recorded, again) if again else []
        self.others: tuple[Tensor, ...] = Part(module, again).inputs if again else ()
        self.model = module
        leaves, self.spec = tree_flatten((recorded.args, recorded.kwargs))
        self.places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        self.inputs: tuple[Tensor, ...] = tuple(leaves[place] for place in self.places)
        self.rest = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self.eval()

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        leaves = list(self.rest)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = tree_unflatten(leaves, self.spec)
        return tuple(tensors_of(self.model(*args, **kwargs)))


def moving_axes(one: Recorded, other: Recorded) -> list[list[int]]:
    """Return for each input tensor of a call the axes that differ between two pictures.

    Empty where the call was also given numbers that differ, or objects that may hold some: on its own such a part has them fixed.
    """
    (first, spec), (second, other_spec) = (tree_flatten((call.args, call.kwargs)) for call in (one, other))
    tensors = [leaf for leaf in first if isinstance(leaf, Tensor)]
    if spec != other_spec or any(isinstance(a, Tensor) != isinstance(b, Tensor) for a, b in zip(first, second, strict=True)):
        return [[] for _ in tensors]
    rest = [(a, b) for a, b in zip(first, second, strict=True) if not isinstance(a, Tensor)]
    if any(not isinstance(a, _PLAIN) or a != b for a, b in rest):
        return [[] for _ in tensors]
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if isinstance(a, Tensor)]
    # An axis of 1 is a constant to torch.export whatever the code does with it.
    return [[axis for axis in range(a.dim()) if a.shape[axis] != b.shape[axis] and a.shape[axis] > 1] if a.dim() == b.dim() else []
            for a, b in pairs]


def part_of(adapter: Adapter, name: str, example: Tensor, image: Tensor) -> Part | None:
    """Return the call `name` of the model on `example`, with the tensors for `image`; None if there is none."""
    calls = [call for call in list_calls(adapter.model, lambda: adapter.run_on(example)) if str(call) == name]
    first, second = (record(adapter.model, partial(adapter.run_on, picture), calls) for picture in (example, image))
    if not calls or calls[0] not in first or calls[0] not in second:
        return None
    return Part(adapter.model.get_submodule(calls[0].path), first[calls[0]], second[calls[0]])
