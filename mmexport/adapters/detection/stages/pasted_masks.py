"""Export detections whose masks are pasted into the picture."""
from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ....errors import ConfigError
from ...base import Adapter
from ...specs import LOGIT_TOLERANCE, STEEPEST, OutputSpec
from ..pasting import decided, pasted, read_masks

if TYPE_CHECKING:
    from .roi_masks import RoiMasks
else:
    # It stands before a `RoiMasks` in the order of methods.
    RoiMasks = Adapter


def with_pasted_masks(cls: type[RoiMasks]) -> type[RoiMasks]:
    """Return a subclass whose `masks` are (N, K, H, W) uint8: 1 where the probability reaches ``test_cfg.rcnn.mask_thr_binary``."""
    return type(f'{cls.__name__}Pasted', (_Pasted, cls), {'__doc__': cls.__doc__})


class _Pasted(RoiMasks):
    """Paste the logits that the class after it in the order of methods gives."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.has_masks:
            raise ConfigError(f"export.outputs.masks='paste' asks for masks, and {type(self.model).__name__} has none: leave it out")
        if self.threshold < 0:
            raise ConfigError(f"test_cfg.rcnn.mask_thr_binary is {self.threshold}, which asks for masks without a threshold; "
                              "export.outputs.masks='paste' needs one from 0 to 1")

    @property
    def threshold(self) -> float:
        return float(self._part('roi_head').test_cfg.mask_thr_binary)

    @property
    def specs(self) -> tuple[OutputSpec, ...]:
        return tuple(OutputSpec('masks', 'uint8', ('batch', 'row', 'height', 'width'), spec.kind) if spec.name == 'masks' else spec
                     for spec in super().specs)

    def final(self, raw: tuple[Tensor, ...], image: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        *rows, logits = super().final(raw, image, *others)
        whole = _whole(logits, rows[0], image.shape[2:]) >= self.threshold
        return (*rows, decided(whole, rows[3], others[0] if others else None))

    def evidence(self, raw: tuple[Tensor, ...], image: Tensor, recorded: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return also `mask_near` (N, K, H, W): the pixels at the threshold, or that come to it where a box moves by its tolerance."""
        evidence = super().evidence(raw, image, recorded)
        others = [recorded[name] for name in ('img_shape',) if name in recorded]
        *rows, logits = super().final(raw, image, *others)
        moved, size = self.masks_where_moved(raw, others[0] if others else self.sizes_of(image), rows), image.shape[2:]
        whole = _whole(logits, rows[0], size)
        slack = torch.zeros_like(whole)
        for boxes, masks in zip(moved.boxes, moved.masks, strict=True):
            slack = torch.maximum(slack, (_whole(masks, boxes, size) - whole).abs())
        slack = slack + STEEPEST * LOGIT_TOLERANCE * float(logits.abs().max())
        near = (whole - self.threshold).abs() <= slack
        if moved.unknown is not None:
            near = near | (pasted(moved.unknown.flatten(0, 1).float(), rows[0].flatten(0, 1), *size).unflatten(0, near.shape[:2]) > 0)
        return {**{name: value for name, value in evidence.items() if name != 'mask_slack'}, 'mask_near': near}

    def testing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def read(self, samples: list[Any]) -> dict[str, Tensor]:
        return {**self.read_boxes(samples), 'masks': read_masks(samples, self.limit)}


def _whole(logits: Tensor, boxes: Tensor, size: Sequence[Any]) -> Tensor:
    """Return the probabilities (N, K, H, W) of masks (N, K, h, w)."""
    whole = pasted(logits.flatten(0, 1).sigmoid(), boxes.flatten(0, 1), size[0], size[1])
    return whole.unflatten(0, logits.shape[:2])
