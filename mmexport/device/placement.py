"""Find where registered tensors are, and which of them ``.to()`` does not move."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from .findings import Finding, Place
from .tags import CPU, Tag
from .unregistered_tensors import assigned


def misplaced_tensors(model: nn.Module) -> list[Finding]:
    """Return parameters and buffers on another device than most: moved alone, never loaded (``meta``), or created there.

    Such a model cannot be run at all, so these are reported before anything runs.
    """
    weight: Counter[torch.device] = Counter()
    for _, _, _, tensor in _registered(model):
        weight[tensor.device] += max(tensor.numel(), 1)
    home = weight.most_common(1)[0][0] if weight else CPU
    return [Finding('placement', f'{f"{path}.{name}".lstrip(".")} lies on {tensor.device}, the model on {home}',
                    assigned(type(module), name, path), '', Place())
            for path, module, name, tensor in _registered(model) if tensor.device != home]


def unmoved_tensors(model: nn.Module, names: Mapping[int, str]) -> dict[int, Tag]:
    """Return by id the parameters and buffers that a module's own ``_apply`` does not move.

    ``_apply`` is what ``.to()``, ``.cuda()`` and ``.half()`` go through; it is called here with a function that moves nothing.
    """
    reached: set[int] = set()

    def note(tensor: Tensor) -> Tensor:
        reached.add(id(tensor))
        return tensor

    model._apply(note)
    return {id(tensor): Tag(CPU, 'left behind', f'self.{name}, which {type(module).__name__}._apply keeps from moving',
                            assigned(type(module), name, names.get(id(module), path)))
            for path, module, name, tensor in _registered(model) if id(tensor) not in reached}


def _registered(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, Tensor]]:
    """Yield path, module, name and tensor of every parameter and buffer."""
    for path, module in model.named_modules():
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                yield path, module, name, tensor
