"""Export CondInst and BoxInst."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ....registry import ADAPTERS
from .dynamic_masks import DynamicMasks

BOXES, MASKS = 'CondInstBboxHead', 'CondInstMaskHead'


@ADAPTERS.register_module()
class CondInst(DynamicMasks):
    """Give boxes and masks of CondInst and BoxInst; see `DynamicMasks`.

    Source: mmdet/models/dense_heads/condinst_head.py.
    """

    map_names = ('scores', 'boxes', 'factors', 'kernels', 'features')
    known = {'bbox_head': {'predict_by_feat': BOXES, '_predict_by_feat_single': BOXES, '_bbox_post_process': 'BaseDenseHead'},
             'mask_head': {'predict_by_feat': MASKS, '_predict_by_feat_single': MASKS, 'forward': MASKS, 'forward_single': MASKS,
                           'parse_dynamic_params': MASKS, 'dynamic_conv_forward': MASKS}}

    @property
    def mask_part(self) -> Any:
        return self.model.mask_head

    @property
    def threshold(self) -> float:
        return float(self.mask_part.test_cfg.mask_thr)

    def raw(self, image: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
        features = self.model.extract_feat(image)  # type: ignore[operator]
        return self.flattened(*self.head(features), [self.mask_part.mask_feature_head(features)])

    def reach_of(self, strides: Tensor) -> Tensor:
        return strides * self.mask_part.size_of_interest

    def in_picture(self, logits: Tensor, size: Sequence[Any]) -> Tensor:
        from mmdet.models.utils import aligned_bilinear
        part = self.mask_part
        probabilities = aligned_bilinear(logits, int(part.mask_feat_stride / part.mask_out_stride)).sigmoid()
        return aligned_bilinear(probabilities, part.mask_out_stride)[..., :size[0], :size[1]]  # type: ignore[no-any-return]
