"""Replace the maps of coordinates that SOLO's heads add to their features."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class Coordinates(Patch):
    """Compute the coordinates of a map, from -1 to 1, by its size.

    ``torch.linspace`` fixes the number of its steps under torch.export (2.13.0).

    Source: mmdet/models/utils/misc.py, ``generate_coordinate``.
    """

    targets = ('mmdet.models.utils.misc.generate_coordinate',)
    upstream = 'mmdet 3.3.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return coordinates


def coordinates(featmap_sizes: Sequence[Any], device: Any = 'cuda') -> Tensor:
    """Return x and y (N, 2, H, W) of a map of size (N, C, H, W)."""
    batch, _, height, width = featmap_sizes
    x, y = (_line(side, device) for side in (width, height))
    return torch.stack([x.expand(height, -1), y[:, None].expand(-1, width)]).expand(batch, -1, -1, -1)


def _line(side: Any, device: Any) -> Tensor:
    """Return `side` numbers from -1 to 1; -1 if it is one."""
    places = torch.arange(side, device=device)
    return 2 * places / places[-1:].clamp(min=1) - 1
