"""Define when a file of reduced precision passes: by its median error and by its clear decisions."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FULL = 'float32'
# Figures in the task's own terms that are shares of 1.
AGREEMENTS = ('clear_agreement', 'mask_iou')
CLEAR_SHARE = 0.25
# Times what the median may be: what one unit that is off by more stands out by.
STANDS_OUT = 10.0


@dataclass(frozen=True)
class Reduced:
    """Hold the limits of one precision.

    Attributes:
        median: the error of the median unit (pixel, query) over the output's scale.
        agreement: the share of equal decisions where eager's margin is above twice the median.
    """

    median: float
    agreement: float


# Ten units of rounding (float16 has 11 bits, bfloat16 8) for a network's depth. The largest error is no measure: where a model itself
# jumps, a few units are off by anything; the share of decisions that stay says what that costs.
REDUCED = {'float16': Reduced(median=5e-3, agreement=0.99), 'bfloat16': Reduced(median=4e-2, agreement=0.97)}


def rule(precision: str) -> str:
    limits = REDUCED[precision]
    return f'{precision}: median <= {limits.median:g}, {limits.agreement:.0%} of clear decisions or instances stay'


def reason(precision: str, continuous: bool, median: float | None, cosine: float | None, beyond: float | None,
           metrics: Mapping[str, Any]) -> str | None:
    """Return the reason why an output of a file of this precision fails, or None."""
    limits = REDUCED[precision]
    if continuous:
        if median is None or cosine is None:
            return 'nothing was compared'
        if not median <= limits.median:
            return f'median error {median:.1e} of scale, {limits.median:g} may be in {precision}'
        if not cosine >= limits.agreement:
            return f'cosine {cosine:.4f}, {limits.agreement:g} must be in {precision}'
    if 'rows' in metrics and (wrong := _wrong_instances(limits, metrics)):
        return f'{wrong} in {precision}'
    if 'clear_share' in metrics and float(metrics['clear_share']) < CLEAR_SHARE:
        return f"eager is clear about {metrics['clear_share']:.0%} of its decisions only, too few to judge {precision} by"
    known = [(name, float(metrics[name])) for name in AGREEMENTS if name in metrics]
    if not continuous and 'pixel_agreement' in metrics:
        known = [('pixel_agreement', float(metrics['pixel_agreement']))]
    if not known and continuous:
        return None  # Scores have no decision in them.
    if not known:
        if beyond is None:
            return 'nothing was compared'
        # Of instances it is the share of rows that were found again.
        known = [('found', 1 - beyond)]
    name, share = min(known, key=lambda entry: entry[1])
    return None if share >= limits.agreement else f'{name} {share:.2%}, {limits.agreement:.0%} must be in {precision}'


def _wrong_instances(limits: Reduced, metrics: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the matched rows, or None: overlaps are computed of those only."""
    matched_share = 1 - float(metrics['rows_lost']) / max(float(metrics['rows']), 1.0)
    if not matched_share >= limits.agreement:
        return f'{matched_share:.2%} of the instances are found again, {limits.agreement:.0%} must be'
    off, allowed = float(metrics['score_error']) / max(float(metrics['best_score']), 1e-12), STANDS_OUT * limits.median
    if not off <= allowed:
        return f'a score is off by {off:.1e} of the best, {allowed:g} may be'
    return None if float(metrics['box_error']) <= 1 else f"a box is {metrics['box_error']:.0f} pixels off its mask, 1 may be"
