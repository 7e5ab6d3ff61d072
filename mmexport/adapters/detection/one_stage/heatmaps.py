"""Share what heads have that choose the local maxima of maps of scores: CenterNet's and CornerNet's."""
from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....errors import UnsupportedModelError
from ...base import Adapter
from ..boxes.decoders import owner_of
from ..detection import Detection


class Position(NamedTuple):
    """Hold where the cells of a map lie, each (N, K): the class, the place in its map, and the row and the column of that."""

    labels: Tensor
    place: Tensor
    row: Tensor
    column: Tensor


class HeatmapDetection(Detection):
    """Give boxes of local maxima. Upstream takes the border of its padding away, which is zero here."""

    # The class that defines the methods which are replaced here, and what else its heads have.
    known: ClassVar[str]
    methods: ClassVar[tuple[str, ...]]
    attributes: ClassVar[tuple[str, ...]]

    @classmethod
    def variant(cls, option: str) -> type[Adapter] | None:
        return None

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        head = getattr(model, 'bbox_head', None)
        return hasattr(model, 'extract_feat') and all(hasattr(head, name) for name in (*cls.methods, *cls.attributes))

    def check_head(self) -> None:
        for name in self.methods:
            if (owner := owner_of(self.head, name)) != self.known:
                raise UnsupportedModelError(f'{type(self.head).__name__} decides by a {name} of {owner}, which mmexport does not know: use '
                                            '--outputs raw')

    def unscaled(self, size: tuple[int, int]) -> dict[str, Any]:
        # The test pipeline centres a picture in its padding, and `border` says where it begins and ends.
        return dict(super().unscaled(size), border=(0, size[0], 0, size[1]))

    @property
    def kernel(self) -> int:
        return int(self.head.test_cfg['local_maximum_kernel'])

    def highest(self, heat: Tensor) -> Tensor:
        """Return the highest score around each position."""
        return F.max_pool2d(heat, self.kernel, stride=1, padding=(self.kernel - 1) // 2)

    def peaks(self, heat: Tensor) -> Tensor:
        """Return the scores of the local maxima; the others are zero."""
        return torch.where(self.highest(heat) == heat, heat, torch.zeros_like(heat))

    def nearly_tied(self, heat: Tensor, slack: Tensor) -> Tensor:
        """Return which scores rounding, by `slack`, may make local maxima, or not."""
        around = F.unfold(F.pad(heat.flatten(0, 1)[:, None], [(self.kernel - 1) // 2] * 4, value=-1.0), self.kernel)
        around[:, self.kernel * self.kernel // 2] = -1.0
        return (heat - around.amax(dim=1).view_as(heat)).abs() <= 2 * slack

    @staticmethod
    def position_of(cells: Tensor, height: Any, width: Any) -> Position:
        """Return where cells (N, K) of a flattened map (N, C * height * width) lie."""
        labels = torch.div(cells, height * width, rounding_mode='floor')
        # ``%`` with a size that is open does not convert to ONNX (torch 2.13.0).
        place = cells - labels * (height * width)
        row = torch.div(place, width, rounding_mode='floor')
        return Position(labels, place, row, place - row * width)

    def scale_of(self, heat: Tensor, sizes: Tensor) -> Tensor:
        """Return the pixels of a cell of each picture (N, 2), by column and row; height and width are `sizes` (N, 2)."""
        cells = torch.stack([heat.new_zeros(heat.shape[0]) + side for side in heat.shape[2:]], dim=1)
        return (sizes / cells).flip(1)
