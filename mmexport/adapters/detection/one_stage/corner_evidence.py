"""Find what rounding may change in the rows of CornerNet: which corners there are, and which of them belong together."""
from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ....ops.ranking import rows_at
from ....ops.sigmoid import sigmoid
from ...specs import LOGIT_TOLERANCE
from ..boxes.candidates import Candidates
from ..boxes.evidence import close_calls, score_slack
from ..boxes.suppression import Kept, places_kept

if TYPE_CHECKING:
    from .corners import CornerDetection, Corners

# Pairs beyond the chosen ones that are looked at.
PAIRS = 200
# More corners than these nearly tie only where a map is flat or saturated; every row is in doubt then, with these alone as well.
MOST = 2000


class Known(NamedTuple):
    """Hold corners, and what is known of each (N, k): whether eager has chosen it, and whether a file surely does, or may."""

    corners: Corners
    chosen: Tensor
    surely: Tensor
    maybe: Tensor


def doubts_of_pairs(adapter: CornerDetection, raw: tuple[Tensor, ...], sizes: Tensor) -> dict[str, Tensor]:
    """Return what `evidence.close_calls` returns. Pairs of which rounding may make one, or end one, are in doubt."""
    first, second = (_known(adapter, raw, kind, sizes) for kind in (0, 1))
    stride = float(adapter.scale_of(raw[0], sizes).max())
    near = 2 * LOGIT_TOLERANCE * stride * float(torch.stack([part.abs().max() for part in raw[4:6]]).max())
    close = 2 * LOGIT_TOLERANCE * float(torch.stack([part.abs().max() for part in raw[2:4]]).max())
    pairs = adapter.pairs(first.corners, second.corners, near, close)
    chosen, surely, maybe = ((one[:, :, None] & other[:, None]).flatten(1) for one, other in zip(first[1:], second[1:], strict=True))
    of_eager, possible = chosen & pairs.fits, maybe & (pairs.fits | ~pairs.certain)
    scores = torch.where(of_eager | possible, pairs.scores, torch.full_like(pairs.scores, -1.0))
    scores, index = scores.topk(min(adapter.count + PAIRS, scores.shape[1]), dim=1)
    certain = surely & pairs.fits & pairs.certain
    removed, added = ((flags.gather(1, index) & (scores > -0.1)) for flags in (of_eager & ~certain, possible & ~of_eager))
    candidates = Candidates(rows_at(pairs.boxes, index), scores, pairs.labels.gather(1, index), scores > -0.1)
    eager, codes = adapter.eager(raw, sizes)
    expected = places_kept(eager, adapter.settings)
    rows = codes.gather(1, expected.places)[..., None] == pairs.codes.gather(1, index)[:, None]
    scale = float(torch.stack([heat.abs().max() for heat in raw[:2]]).max())
    return close_calls(candidates, adapter.settings, scale, removed, added, Kept(rows.to(torch.int64).argmax(dim=2), *expected[1:]))


def _known(adapter: CornerDetection, raw: tuple[Tensor, ...], kind: int, sizes: Tensor) -> Known:
    """Return the corners of one kind that eager or a file may choose."""
    heat, limit = sigmoid(raw[kind]), int(adapter.head.test_cfg['corner_topk'])
    slack, highest = score_slack(heat, float(raw[kind].abs().max())), adapter.highest(heat)
    near, tops = adapter.nearly_tied(heat, slack), highest == heat
    present = torch.where(tops | near, heat, torch.zeros_like(heat))
    count = max(limit, min(_needed(present, slack, tops & ~near, limit), MOST))
    corners = adapter.corners(present, raw[2 + kind], raw[4 + kind], sizes, count)
    peak, doubtful, margin = (part.flatten(1).gather(1, corners.cells) for part in (tops, near, slack))
    of_eager = adapter.peaks(heat).flatten(1).topk(limit, dim=1).indices
    low, high = corners.scores - margin, corners.scores + margin
    sure = peak & ~doubtful
    # A corner is chosen where fewer than `limit` others are ahead.
    ahead = (high[:, None] >= low[..., None]).sum(dim=2) - 1
    surely_ahead = ((low[:, None] > high[..., None]) & sure[:, None]).sum(dim=2)
    return Known(corners, (corners.cells[..., None] == of_eager[:, None]).any(dim=2) & peak, sure & (ahead < limit), surely_ahead < limit)


def _needed(present: Tensor, slack: Tensor, sure: Tensor, limit: int) -> int:
    """Return how many corners there are that fewer than `limit` sure ones are ahead of. Many more nearly tie where a map is flat.

    Args:
        present: the scores (N, C, H, W) of what may be a corner, else 0.
    """
    scores, margin = present.flatten(1), slack.flatten(1)
    least = torch.where(sure.flatten(1), scores - margin, torch.full_like(scores, -1.0)).topk(limit, dim=1).values[:, -1:]
    return int(((scores > 0) & (scores + margin >= least)).sum(dim=1).amax())
