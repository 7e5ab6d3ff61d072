"""Compare attention masks (N, Q, cells of all layers) with the signs of eager's logits. Rounding may decide those near 0.

A layer's masks change the logits of the next, and are judged only as long as all before them are eager's own. Right masks that are not
eager's are followed, see `mmexport.checker.check`, and then those of all layers are judged.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ..reduced import REDUCED, STANDS_OUT, by_share

if TYPE_CHECKING:
    from ..comparison import Comparison

CONTINUOUS, CHOICE, FREE = False, True, True
# Eager's logit of each cell in units of its query's scale, masked below 0, and the number of cells by layer.
DECIDING, CELLS = 'attention_logits', 'attention_cells'


def compare(names: Sequence[str], expected: Mapping[str, Tensor], actual: Mapping[str, Tensor], evidence: Mapping[str, Tensor],
            tolerance: float, clear: float | None) -> dict[str, Any]:
    """Return the share of cells that are wrong. They are masked where eager surely attends to them, or the other way round.

    Of the worst query in a layer, `worst_query` is the share of its sure cells that are wrong, less one cell.

    Args:
        clear: of reduced precision, the tolerance instead.
    """
    own, masks, deciding = expected[names[0]], actual[names[0]], evidence[DECIDING]
    wrong, worst, start = 0, 0.0, 0
    for cells in evidence[CELLS].tolist():
        part = slice(start, start + cells)
        start += cells
        # Of each image on its own: one does not change another.
        same = (own[:, :, :part.start] == masks[:, :, :part.start]).flatten(1).all(dim=1)
        sure = (deciding[:, :, part].abs() >= (clear or tolerance)) & same[:, None, None]
        by_query = (sure & (masks[:, :, part] != (deciding[:, :, part] < 0))).sum(dim=2)
        wrong += int(by_query.sum())
        worst = max(worst, float(((by_query - 1) / sure.sum(dim=2).clamp(min=1)).amax()))
    metrics = dict(cells=masks.numel(), cells_moved=int((masks != own).sum()), worst_query=worst)
    return dict(beyond=wrong / max(masks.numel(), 1), metrics=metrics)


def reduced(row: Comparison) -> str | None:
    """Return why masks fail in reduced precision: those of one query, or of all.

    What is computed with the masks is compared with eager on the same masks, so no other row shows that a query has wrong ones.
    """
    allowed, worst = STANDS_OUT * (1 - REDUCED[row.precision].agreement), float(row.metrics['worst_query'])
    if not worst <= allowed:
        return f'{worst:.0%} of the cells of a query are wrong in a layer, limit {allowed:.0%} in {row.precision}'
    return by_share(row)


def little_change(name: str, one: Mapping[str, Tensor], other: Mapping[str, Tensor], classes: int, tolerance: float,
                  margin: float) -> str | None:
    """Return None: two inputs may have the same masks, and what is computed with them is judged."""
    return None
