"""Calibrate the scores of seeded attention.

As initialisers draw the projections, scores hardly differ between keys, and each query gets nearly the mean of the picture: the queries of
one picture differ by a twentieth of what pictures differ by, and all have one class. Where scores differ by 30, each query takes one key
alone: rounding changes which, and a noise of 1e-6 moved DAB-DETR's logits by a third of their scale.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from ..utils.override import override

# How much the scores of one query's keys spread, over which the softmax is taken.
SCORE_STD = 3.0
# Linear layers of mmdet's ConditionalAttention that make queries and keys.
CONDITIONAL = ('qcontent_proj', 'qpos_proj', 'kcontent_proj', 'kpos_proj', 'qpos_sine_proj')


@contextmanager
def calibrated_attention(model: nn.Module) -> Iterator[None]:
    """Scale the projections of each attention at its first call inside the block. Only detectors by queries are touched."""
    with ExitStack() as stack:
        for module in model.modules() if hasattr(model, 'forward_transformer') else ():
            if isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
                stack.callback(module.register_forward_pre_hook(_Once(_scale), with_kwargs=True).remove)
            elif hasattr(module, 'forward_attn') and hasattr(module, CONDITIONAL[0]):
                stack.enter_context(override(module, 'forward_attn', _scaling(module)))
        yield


class _Once:
    """Call a function the first time alone."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function: Callable[..., None] | None = function

    def __call__(self, *args: Any) -> None:
        if self.function:
            self.function(*args)
            self.function = None


def _scale(module: nn.MultiheadAttention, args: Sequence[Tensor], kwargs: Mapping[str, Any]) -> None:
    query, key = (kwargs.get(name, args[place] if len(args) > place else None) for place, name in enumerate(('query', 'key')))
    weight, bias, width = module.in_proj_weight, module.in_proj_bias, module.embed_dim
    made = [F.linear(tensor, weight[part], None if bias is None else bias[part]) for tensor, part in (
        (query, slice(0, width)), (key, slice(width, 2 * width)))]
    queries, keys = (tensor if module.batch_first else tensor.transpose(0, 1) for tensor in made)
    factor = _factor(queries, keys, module.num_heads)
    for parameter in (weight, bias):
        if parameter is not None:
            parameter[:2 * width] *= factor


def _scaling(module: Any) -> Callable[..., Any]:
    forward = module.forward_attn

    def first(query: Tensor, key: Tensor, **others: Any) -> Any:
        factor = 1.0
        if not calls:
            factor = _factor(query, key, module.num_heads)
            # A later layer of Conditional DETR has no projection of positions.
            for layer in (getattr(module, name) for name in CONDITIONAL if getattr(module, name, None) is not None):
                layer.weight *= factor
                layer.bias *= factor
        calls.append(None)
        return forward(query=factor * query, key=factor * key, **others)
    calls: list[None] = []
    return first


def _factor(query: Tensor, key: Tensor, heads: int) -> float:
    """Return by what queries (N, Q, C) and keys (N, K, C) are multiplied for scores to spread by `SCORE_STD`."""
    query, key = (tensor.unflatten(2, (heads, -1)).transpose(1, 2) for tensor in (query, key))
    scores = query @ key.transpose(2, 3) * query.shape[3] ** -0.5
    return float((SCORE_STD / scores.std(dim=3, unbiased=False).mean().clamp_min(1e-6)).sqrt())
