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


def largest_value(expected: Tensor) -> Tensor:
    """Return the largest absolute value, as the scale of every element."""
    return torch.full_like(expected, max(float(expected.abs().max()), TINY))


class Units:
    """Define the units of an output whose errors are counted; here every element of maps (N, h, w) is one.

    A kind of output extends it where it differs.

    Attributes:
        exempts: whether ``evidence['exempt']`` (N, h, w) takes units out.
    """

    exempts = True

    def scale(self, expected: Tensor) -> Tensor:
        """Return by element what its error is relative to."""
        return largest_value(expected)

    def largest(self, error: Tensor) -> Tensor:
        """Return the largest error of each unit, (N * units,)."""
        return error.flatten()

    def decision_axis(self, expected: Tensor) -> int | None:
        """Return the axis along which the largest value is a decision, or None."""
        return None

    def metrics(self, expected: Tensor, actual: Tensor) -> dict[str, float]:
        """Return figures in the task's own terms."""
        return {}


def compare_continuous(units: Units, name: str, expected: Mapping[str, Tensor], actual: Mapping[str, Tensor],
                       evidence: Mapping[str, Tensor], tolerance: float, clear: float | None = None) -> dict[str, Any]:
    """Compare one continuous output and return its metrics.

    With `clear`, decisions are compared too where the best class is ahead of the next by that much of the scale.
    ``evidence['exempt']`` (N, h, w) takes pixels out that sit on an edge of the model's own choice (PointRend's top-k).
    """
    expected_values, actual_values = expected[name].double(), actual[name].double()
    if expected_values.numel() == 0:
        return dict(problem='an empty output proves nothing')
    scales = units.scale(expected_values)
    scale = float(scales.min())
    error = (expected_values - actual_values).abs() / scales
    metrics: dict[str, Any] = {}
    exempt = evidence.get('exempt')
    if exempt is not None and units.exempts:
        keep = ~exempt.bool()
        error = error.masked_fill(~(keep[:, None] if error.dim() > keep.dim() else keep), 0.0)
        metrics['exempt_share'] = 1 - share(keep)
        if metrics['exempt_share'] > MAX_EXEMPT:
            return dict(problem=f"{metrics['exempt_share']:.0%} of the pixels are at the edge of the model's own choice: too few are left "
                                'to compare', metrics=metrics)
        errors = units.largest(error)[keep.flatten()]
        by_image = [units.largest(one)[units_left.flatten()] for one, units_left in zip(error.split(1), keep, strict=True)]
    else:
        errors = units.largest(error)
        by_image = list(errors.view(len(error), -1))
    metrics.update(units.metrics(expected_values, actual_values))
    if clear is not None:
        metrics.update(_clear_decisions(units.decision_axis(expected_values), expected_values, actual_values, clear * scale))
    return dict(max_abs=float((error * scales).max()), max_rel=float(error.max()),
                cosine=float(F.cosine_similarity(expected_values.flatten(), actual_values.flatten(), dim=0, eps=TINY)),
                beyond=share(errors > tolerance), metrics=metrics,
                # Of the worst image: one that is wrong throughout is half of a batch of two.
                median=max((float(image_errors.median()) for image_errors in by_image if image_errors.numel()), default=0.0))


def agreement(expected: Tensor, actual: Tensor, axis: int) -> float:
    """Return the share of decisions along `axis` that are equal."""
    return share(expected.argmax(axis) == actual.argmax(axis))


def _clear_decisions(axis: int | None, expected: Tensor, actual: Tensor, ahead: float) -> dict[str, float]:
    """Return the share of decisions with a margin above `ahead`, and the share of those that agree."""
    if axis is None or expected.shape[axis] == 1:
        return {}
    best = expected.topk(2, dim=axis).values
    clear = (best.select(axis, 0) - best.select(axis, 1)) > ahead
    same = expected.argmax(axis) == actual.argmax(axis)
    stays = share(same[clear]) if bool(clear.any()) else 0.0
    return {'clear_share': share(clear), 'clear_agreement': stays}
