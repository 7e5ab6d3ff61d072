"""Run a model with shapes only: tensors computed from the image hold no values."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ..compat.pytree import tree_map_only
from .known_shapes import RULES

# Elements of a table of sizes, which keeps its values.
SMALL = 4096


class ShapesOnly(TorchDispatchMode):
    """Run a model without values, on the meta device; small integer tensors (tables of sizes) keep theirs."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [part for part in flat([*args, *kwargs.values()]) if isinstance(part, Tensor)]
        if not any(tensor.is_meta for tensor in tensors):
            if str(kwargs.get('device')) == 'meta':
                result = func(*args, **kwargs)
                if result.is_floating_point() or result.numel() > SMALL:
                    return result
                kwargs['device'] = torch.device('cpu')
            return func(*args, **kwargs)
        if any(not tensor.is_meta and tensor.dim() for tensor in tensors):
            args, kwargs = tree_map_only(Tensor, _emptied, (tuple(args), kwargs))
        known = RULES[func](*args) if func in RULES and not kwargs else None
        return func(*args, **kwargs) if known is None else known


def _emptied(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_meta or not tensor.dim() else tensor.to('meta')


def flat(parts: Sequence[Any]) -> Iterator[Any]:
    for part in parts:
        if isinstance(part, (list, tuple)):
            yield from flat(part)
        else:
            yield part
