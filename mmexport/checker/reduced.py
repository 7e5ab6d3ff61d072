"""Define when a file of reduced precision passes. Median error, cosine and clear decisions count."""
from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .comparison import Comparison

FULL = 'float32'
# Figures in the task's own terms that are shares of 1.
AGREEMENTS = ('clear_agreement', 'mask_iou')
CLEAR_SHARE = 0.25
# A single unit may be off by this multiple of what the median may be.
STANDS_OUT = 10.0


@dataclass(frozen=True)
class Reduced:
    """Hold the limits of one precision.

    Attributes:
        median: the error of the median unit (pixel, query) over the output's scale.
        agreement: the least share of equal decisions where eager's margin is above twice the median, and the least cosine.
    """

    median: float
    agreement: float


# Ten units of rounding (float16 has 11 bits, bfloat16 8) for a network's depth. The largest error is no measure: where a model itself
# jumps, a few units are off by anything; the share of decisions that stay says what that costs.
REDUCED = {'float16': Reduced(median=5e-3, agreement=0.99), 'bfloat16': Reduced(median=4e-2, agreement=0.97)}


def rule(precision: str) -> str:
    limits = REDUCED[precision]
    return (f'{precision}: median error <= {limits.median:g}, cosine >= {limits.agreement:g}, at least {limits.agreement:.0%} of clear '
            'decisions or instances agree')


def by_error(row: Comparison) -> str | None:
    """Return why a continuous output fails: its median error, its direction, or its clear decisions."""
    limits, precision, metrics = REDUCED[row.precision], row.precision, row.metrics
    if row.median is None or row.cosine is None:
        return 'nothing was compared'
    if not row.median <= limits.median:
        return f'median error {row.median:.1e} of scale, limit {limits.median:g} in {precision}'
    if not row.cosine >= limits.agreement:
        return f'cosine {row.cosine:.4f}, at least {limits.agreement:g} required in {precision}'
    if 'clear_share' in metrics and float(metrics['clear_share']) < CLEAR_SHARE:
        return f"eager is clear about {metrics['clear_share']:.0%} of its decisions only, too few to judge {precision} by"
    shares = [(name, float(metrics[name])) for name in AGREEMENTS if name in metrics]
    # Scores have no decision in them.
    return by_share(row, *min(shares, key=lambda entry: entry[1])) if shares else None


def by_share(row: Comparison, name: str = 'found', share: float | None = None) -> str | None:
    """Return why decisions fail of which `share` is right; without one, those that do not clearly differ are."""
    if share is None:
        if row.beyond is None:
            return 'nothing was compared'
        share = 1 - row.beyond
    limits = REDUCED[row.precision]
    return None if share >= limits.agreement else f'{name} {share:.2%}, at least {limits.agreement:.0%} required in {row.precision}'
