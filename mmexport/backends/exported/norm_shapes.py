"""Infer the shape of a norm's output without decomposing the norm."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

NORM = torch.ops.aten._native_batch_norm_legit_no_training.default


@contextmanager
def norms_by_shape() -> Iterator[None]:
    """Let norms of contiguous inputs return at once in the input's shape while a model is traced.

    torch works out a dozen operators on open sizes to know the shape of each norm. Fake tensors alone ask here, so no operator of a graph
    is another one; where two nodes hold the same size, the other one may be named. Checked on torch 2.13
    (``torch/_subclasses/fake_impls.py``, ``native_batch_norm_helper`` in ``torch/_decomp/decompositions.py``); where there is no such
    place to ask, nothing is changed.
    """
    try:
        from torch._decomp import decomposition_table
        from torch._prims_common import is_contiguous_for_memory_format_or_false
        from torch._subclasses.fake_impls import FAST_OP_IMPLEMENTATIONS as FAST
        usual = decomposition_table[NORM]
    except (ImportError, KeyError):
        yield
        return
    if NORM in FAST:
        yield
        return
    FAST[NORM] = _answer(usual, is_contiguous_for_memory_format_or_false)
    try:
        yield
    finally:
        del FAST[NORM]


def _answer(usual: Callable[..., Any], contiguous: Callable[..., bool]) -> Callable[..., Any]:
    from torch._subclasses.fake_tensor import FakeTensor

    def answer(mode: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor, momentum: float,
               eps: float) -> Any:
        every = [tensor for tensor in (x, weight, bias, mean, variance) if tensor is not None]
        # Other layouts and mixed types have rules of their own.
        if {tensor.dtype for tensor in every} != {torch.float32} or not contiguous(x, memory_format=torch.contiguous_format):
            with mode:
                return usual(x, weight, bias, mean, variance, momentum, eps)
        kept = (0,) if x.device.type == 'cpu' else mean.shape
        return tuple(FakeTensor(mode, torch.empty(shape, device='meta'), x.device) for shape in (x.shape, kept, kept))

    return answer
