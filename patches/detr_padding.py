"""Replace the masks of padding that mmdet's DETR makes, picture by picture."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from mmexport.ops.padding import padding_masks
from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class DetrPadding(Patch):
    """Make the masks of padding of the whole batch at once.

    Upstream clears a part of each picture's mask, by sizes that it reads as numbers: a trace keeps those of its own batch. Pictures that
    fill their input have no masks, and upstream's own code runs. Conditional DETR and DAB-DETR inherit the method.

    Source: mmdet/models/detectors/detr.py.
    """

    targets = ('mmdet.models.detectors.detr.DETR.pre_transformer',)
    upstream = 'mmdet 3.3.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def pre_transformer(model: Any, img_feats: Sequence[Tensor], batch_data_samples: Sequence[Any] = ()) -> Any:
            feat = img_feats[-1]
            mask, = padding_masks(batch_data_samples, [feat])
            if mask is None:
                return original(model, img_feats, batch_data_samples)
            position = model.positional_encoding(mask).flatten(2).permute(0, 2, 1)
            shared = dict(memory_mask=mask.flatten(1), memory_pos=position)
            return dict(feat=feat.flatten(2).permute(0, 2, 1), feat_mask=mask.flatten(1), feat_pos=position), shared
        return pre_transformer
