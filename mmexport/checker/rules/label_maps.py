"""Compare label maps for `kinds/labels` and `kinds/panoptic`: equal wherever eager has a clear margin."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .counting import pairs_of, share

OFFSET = 1000
MAX_NEAR = 0.5


def compare_labels(expected: Tensor, actual: Tensor, evidence: Mapping[str, Tensor], tolerance: float) -> dict[str, Any]:
    """Compare two label maps (N, H, W) and return their metrics.

    A pixel may differ only where ``evidence['margin']``, eager's top-2 margin in units of the logits'
    scale, is under twice the tolerance (each of the two logits may move by one), and then only to one of ``evidence['next']``, the next
    best (N, 1 to 3, H, W); or where ``evidence['exempt']`` (N, H, W) is true, to a label that occurs.
    """
    near = evidence['margin'] < 2 * tolerance if 'margin' in evidence else torch.zeros_like(expected, dtype=torch.bool)
    if bool((actual < 0).any()) and not bool((expected < 0).any()):
        return dict(problem=f'{int(actual.min())} is no label', metrics={})
    labels = expected.unique()
    occurs = torch.isin(actual, labels)
    allowed = (actual[:, None] == evidence['next']).any(dim=1) if 'next' in evidence else occurs
    if 'exempt' in evidence:
        near = near | evidence['exempt'].bool()
        # A point that was refined, or was not, has other logits: any label that occurs may have won.
        allowed |= evidence['exempt'].bool() & occurs
    return _judge(expected != actual, near & allowed, {'labels': int(labels.numel())}, near)


def compare_panoptic(expected: Tensor, actual: Tensor, evidence: Mapping[str, Tensor]) -> dict[str, Any]:
    """Compare two panoptic maps (N, H, W), and return their metrics. A value is class + 1000 * instance.

    Instances are numbered in order of acceptance, so one segment more or
    less renumbers those behind it: instances are matched by overlap within their class first. ``evidence['near']`` marks pixels
    whose winner was close, or that belong to a segment at the edge of a threshold of the config; ``evidence['candidates']`` (N, Q) are the
    classes that may stand there.
    """
    if bool((actual < 0).any()):
        return dict(problem=f'{int(actual.min())} is no segment', metrics={})
    renamed = renamed_after(expected, actual)
    near = evidence.get('near')
    near = torch.zeros_like(expected, dtype=torch.bool) if near is None else near.bool()
    if 'candidates' in evidence:
        # A pixel that eager nearly gave to another segment goes to one of a query that eager kept, or nearly kept.
        near &= torch.isin(actual % OFFSET, torch.cat([expected.flatten() % OFFSET, evidence['candidates'].flatten()]).unique())
    borderline = evidence.get('borderline')
    counts = {'segments': int(sum(image.unique().numel() for image in expected)),
              'segments_found': int(sum(image.unique().numel() for image in actual)),
              'segments_at_a_threshold': 0 if borderline is None else int(borderline.sum())}
    return _judge(expected != renamed, near, counts, near)


def _judge(differs: Tensor, excused: Tensor, counts: dict[str, Any], near: Tensor) -> dict[str, Any]:
    """Return the metrics of pixels that differ.

    Args:
        excused: pixels that may differ as they do.
        near: all pixels without a clear margin in eager.
    """
    clear = differs & ~excused
    metrics = {**counts, 'pixel_agreement': 1 - share(differs), 'differing': int(differs.sum()),
               'differing_clearly': int(clear.sum()), 'near_share': share(near)}
    if metrics['near_share'] > MAX_NEAR:
        return dict(problem=f"eager is unsure of {metrics['near_share']:.0%} of the pixels: too few are left to compare", metrics=metrics)
    return dict(max_abs=None, beyond=share(clear), metrics=metrics)


def renamed_after(expected: Tensor, actual: Tensor) -> Tensor:
    """Return `actual` (N, H, W) with the instance numbers of `expected`. Each gets that of the largest overlap, or -1 if none is left."""
    return torch.stack([_rename(one, other) for one, other in zip(expected, actual, strict=True)])


def _rename(expected: Tensor, actual: Tensor) -> Tensor:
    """Renumber the instances of `actual` after those of `expected`. Each takes the number of the instance of its class with the largest
    overlap."""
    if torch.equal(expected, actual):
        return actual
    renamed = actual.clone()
    # Only instances have numbers; stuff, void and anything that is no label at all must be equal as they are.
    renamed[actual < OFFSET] = -2 - actual[actual < OFFSET]
    renamed[(actual < OFFSET) & (actual == expected)] = expected[(actual < OFFSET) & (actual == expected)]
    taken: set[int] = set()
    pairs, counts = pairs_of(expected, actual)
    for index in counts.argsort(descending=True).tolist():
        expected_segment, actual_segment = int(pairs[0, index]), int(pairs[1, index])
        same_class = expected_segment % OFFSET == actual_segment % OFFSET
        if min(expected_segment, actual_segment) < OFFSET or not same_class or {expected_segment, -actual_segment - 1} & taken:
            continue
        taken.update((expected_segment, -actual_segment - 1))
        renamed[actual == actual_segment] = expected_segment
    for actual_segment in actual[actual >= OFFSET].unique().tolist():
        if -actual_segment - 1 not in taken:
            renamed[actual == actual_segment] = -1
    return renamed
