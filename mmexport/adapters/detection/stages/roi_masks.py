"""Give the masks of a RoI head beside boxes, for detectors that have one."""
from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor

from ...base import Adapter
from ...specs import OutputSpec
from ..detection import Detection
from . import masks
from .mask_evidence import MovedMasks


class RoiMasks(Detection):
    """Add the output `masks` where the RoI head has a mask head.

    It is (N, K, h, w), logits of each row's label within its box.
    """

    @property
    def has_masks(self) -> bool:
        return getattr(self._part('roi_head'), 'mask_head', None) is not None

    @property
    def specs(self) -> tuple[OutputSpec, ...]:
        if self.outputs == 'raw' or not self.has_masks:
            return super().specs
        return (*super().specs, OutputSpec('masks', 'float32', ('batch', 'row', 'mask_h', 'mask_w'), 'detections'))

    @classmethod
    def variant(cls, option: str) -> type[Adapter] | None:
        from .pasted_masks import with_pasted_masks
        return with_pasted_masks(cls) if option == 'paste' else super().variant(option)

    def masks_where_moved(self, raw: tuple[Tensor, ...], sizes: Tensor, rows: Sequence[Tensor]) -> MovedMasks:
        """Return what moving the boxes of eager's `rows` by the tolerance does to their masks."""
        raise NotImplementedError

    def whole(self, image: Tensor) -> Any:
        return self.final(self.raw(image), image)

    def testing(self) -> AbstractContextManager[None]:
        return masks.unpasted(self._part('roi_head')) if self.has_masks else nullcontext()

    def read_boxes(self, samples: list[Any]) -> dict[str, Tensor]:
        """Return what `read` does, without masks."""
        return super().read(samples)

    def read(self, samples: list[Any]) -> dict[str, Tensor]:
        outputs = self.read_boxes(samples)
        return {**outputs, 'masks': masks.read_masks(self._part('roi_head'), samples, self.limit)} if self.has_masks else outputs
