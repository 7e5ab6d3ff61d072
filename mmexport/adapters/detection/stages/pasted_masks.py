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
from .mask_evidence import moved_boxes
from .masks import masks_of
from .points import has_points

if TYPE_CHECKING:
    from .two_stage import TwoStage
else:
    # It stands before a `TwoStage` in the order of methods.
    TwoStage = Adapter



def with_pasted_masks(cls: type[TwoStage]) -> type[TwoStage]:
    """Return a subclass whose `masks` are (N, K, H, W) uint8: 1 where the probability reaches ``test_cfg.rcnn.mask_thr_binary``."""
    return type(f'{cls.__name__}Pasted', (_Pasted, cls), {'__doc__': cls.__doc__})


class _Pasted(TwoStage):
    """Paste the logits that the class after it in the order of methods gives."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.has_masks:
            raise ConfigError(f"export.outputs.masks='paste' asks for masks, and {type(self.model).__name__} has none: leave it out")
        if has_points(self._part('roi_head')):
            raise ConfigError("export.outputs.masks='paste' does not know the masks that PointRend refines: leave it out, and paste them "
                              'by mmexport.instance_data')
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
        boxes, _, labels, _, logits = super().final(raw, image, *others)
        roi_head, features = self._part('roi_head'), self.groups(raw)[1]
        whole = _whole(logits, boxes, image.shape[2:])
        slack = torch.zeros_like(whole)
        for moved in moved_boxes(boxes):
            of_moved = _whole(masks_of(roi_head, features, moved, labels)[0], moved, image.shape[2:])
            slack = torch.maximum(slack, (of_moved - whole).abs())
        slack = slack + STEEPEST * LOGIT_TOLERANCE * float(logits.abs().max())
        return {**{name: value for name, value in evidence.items() if name != 'mask_slack'},
                'mask_near': (whole - self.threshold).abs() <= slack}

    def testing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def read(self, samples: list[Any]) -> dict[str, Tensor]:
        return {**self.read_boxes(samples), 'masks': read_masks(samples, self.limit)}


def _whole(logits: Tensor, boxes: Tensor, size: Sequence[Any]) -> Tensor:
    """Return the probabilities (N, K, H, W) of masks (N, K, h, w)."""
    whole = pasted(logits.flatten(0, 1).sigmoid(), boxes.flatten(0, 1), size[0], size[1])
    return whole.unflatten(0, logits.shape[:2])
