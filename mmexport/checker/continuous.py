"""Compare logits, probabilities and other continuous outputs by error relative to their scale."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .counting import share

TINY = 1e-12
MAX_EXEMPT = 0.25


# A logit that is this far behind the best has a softmax of zero in float32: exp(-88) is its smallest number.
OUT_OF_REACH = 88.0


def competing_scale(values: Tensor, axis: int) -> float:
    """Return the largest absolute value among those within reach of the best along `axis`.

    A class that a head masks with -1e9, or pixels of which it masks every class, must not set the scale by which the others are judged.
    """
    if not values.numel():
        return TINY
    best = values.amax(dim=axis, keepdim=True)
    reach = (values >= best - OUT_OF_REACH) & (best >= best.median() - OUT_OF_REACH)
    return max(float(values.abs().masked_fill(~reach, 0.0).max()), TINY)


def _scale(kind: str, expected: Tensor) -> Tensor:
    """Return the scale of each element: of the competing classes, or its own absolute value if larger (a masked class)."""
    if kind == 'pixels' or (kind == 'queries' and expected.dim() == 3):
        return expected.abs().clamp_min(competing_scale(expected, 1 if kind == 'pixels' else 2))
    return torch.full_like(expected, max(float(expected.abs().max()), TINY))


def compare_continuous(kind: str, name: str, expected: Mapping[str, Tensor], actual: Mapping[str, Tensor],
                       evidence: Mapping[str, Tensor], tolerance: float, clear: float | None = None) -> dict[str, Any]:
    """Compare one continuous output and return its metrics.

    `kind`: ``queries`` (N, Q, ...) counts queries, ``pixels`` (N, C, h, w) and ``map`` (N, h, w) count pixels.

    With `clear`, decisions are compared too where the best class is ahead of the next by that much of the scale.
    ``evidence['exempt']`` (N, h, w) takes pixels out that sit on an edge of the model's own choice (PointRend's top-k).
    """
    expected_values, actual_values = expected[name].double(), actual[name].double()
    if expected_values.numel() == 0:
        return dict(problem='an empty output proves nothing')
    scales = _scale(kind, expected_values)
    scale = float(scales.min())
    error = (expected_values - actual_values).abs() / scales
    metrics: dict[str, Any] = {}
    exempt = evidence.get('exempt')
    if exempt is not None and kind != 'queries':
        error, keep = _without(error, exempt.bool(), kind)
        metrics['exempt_share'] = 1 - share(keep)
        if metrics['exempt_share'] > MAX_EXEMPT:
            return dict(problem=f"{metrics['exempt_share']:.0%} of the pixels are at the edge of the model's own choice: too few are left "
                                'to compare', metrics=metrics)
        units = _units(error, kind)[keep.flatten()]
        pictures = [_units(one, kind)[kept_units.flatten()] for one, kept_units in zip(error.split(1), keep, strict=True)]
    else:
        units = _units(error, kind)
        pictures = list(units.view(len(error), -1))
    metrics.update(_task_metrics(kind, expected_values, actual_values))
    if clear is not None:
        metrics.update(_clear_decisions(kind, expected_values, actual_values, clear * scale))
    return dict(max_abs=float((error * scales).max()), max_rel=float(error.max()),
                cosine=float(F.cosine_similarity(expected_values.flatten(), actual_values.flatten(), dim=0, eps=TINY)),
                beyond=share(units > tolerance), metrics=metrics,
                # Of the worst picture: one that is wrong throughout is half of a batch of two.
                median=max((float(picture.median()) for picture in pictures if picture.numel()), default=0.0))


def _units(error: Tensor, kind: str) -> Tensor:
    """Return the largest error of each query, or of each pixel."""
    if kind == 'queries':
        return error.flatten(2).amax(dim=2).flatten()
    return (error.amax(dim=1) if kind == 'pixels' else error).flatten()


def _without(error: Tensor, exempt: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """Return the error with zeros at exempt pixels, and which pixels remain (N, h, w)."""
    return error.masked_fill(exempt[:, None] if kind == 'pixels' else exempt, 0.0), ~exempt


def _clear_decisions(kind: str, expected: Tensor, actual: Tensor, ahead: float) -> dict[str, float]:
    """Return the share of decisions with a margin above `ahead`, and the share of those that agree."""
    axis = 1 if kind == 'pixels' else 2
    if kind == 'map' or expected.shape[axis] == 1 or (kind == 'queries' and expected.dim() != 3):
        return {}
    best = expected.topk(2, dim=axis).values
    clear = (best.select(axis, 0) - best.select(axis, 1)) > ahead
    same = expected.argmax(axis) == actual.argmax(axis)
    stays = share(same[clear]) if bool(clear.any()) else 0.0
    return {'clear_share': share(clear), 'clear_agreement': stays}


def _task_metrics(kind: str, expected: Tensor, actual: Tensor) -> dict[str, float]:
    if kind == 'pixels' and expected.shape[1] > 1:
        return {'pixel_agreement': share(expected.argmax(1) == actual.argmax(1))}
    if kind == 'queries' and expected.dim() == 3:
        return {'class_agreement': share(expected.argmax(2) == actual.argmax(2))}
    if kind == 'queries':
        one, other = expected > 0, actual > 0
        union = (one | other).flatten(2).sum(2).double()
        both = (one & other).flatten(2).sum(2).double()
        return {'mask_iou': float(torch.where(union > 0, both / union.clamp_min(1), torch.ones_like(both)).mean())}
    return {}
