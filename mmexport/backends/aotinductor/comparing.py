"""Let Inductor call torch's own comparison for masks, whose booleans its code for CPUs stores one by one."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

MASKS = 4  # Axes: image, query, height, width.


@contextmanager
def masks_compared_by_torch() -> Iterator[None]:
    """Compile ``masks > zero`` on a CPU as a call of torch, for `masks` of four axes and a tensor `zero` of none.

    Of a hundred masks at 512 x 512 the generated code takes ten times as long: a vector of booleans goes through an array. Only
    ``aten.gt.Tensor`` is looked at, which PyTorch code with a plain number does not call. Checked on torch 2.13.0
    (``_inductor/lowering.py``, ``lowerings`` and ``fallback_handler``); where there are none of these, nothing is changed.
    """
    greater = torch.ops.aten.gt.Tensor
    try:
        from torch._inductor.lowering import fallback_handler, lowerings
        generated = lowerings[greater]
    except (ImportError, KeyError):
        yield
        return
    called = fallback_handler(greater)

    def lowered(one: Any, other: Any) -> Any:
        try:
            masks = len(one.get_size()) == MASKS and not other.get_size() and one.get_device().type == 'cpu'
        except AttributeError:  # A number, or another class in another version.
            masks = False
        return (called if masks else generated)(one, other)

    lowerings[greater] = lowered
    try:
        yield
    finally:
        lowerings[greater] = generated
