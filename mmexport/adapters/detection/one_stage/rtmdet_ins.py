"""Export RTMDet-Ins."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from ....registry import ADAPTERS
from .dynamic_masks import DynamicMasks

OWNER = 'RTMDetInsHead'
# The side of the region of a box, in strides of its level.
REACH = 8


@ADAPTERS.register_module()
class RTMDetIns(DynamicMasks):
    """Give boxes and masks of RTMDet-Ins; see `DynamicMasks`.

    Source: mmdet/models/dense_heads/rtmdet_ins_head.py.
    """

    map_names = ('scores', 'boxes', 'kernels', 'features')
    known = {'bbox_head': {'predict_by_feat': OWNER, '_predict_by_feat_single': OWNER, '_bbox_mask_post_process': OWNER,
                           '_mask_predict_by_feat_single': OWNER, 'parse_dynamic_params': OWNER}}

    @property
    def mask_part(self) -> Any:
        return self.head

    @property
    def threshold(self) -> float:
        return float(self.head.test_cfg.mask_thr_binary)

    def raw(self, image: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
        *maps, features = self.head(self.model.extract_feat(image))  # type: ignore[operator]
        return self.flattened(*maps, [features])

    def reach_of(self, strides: Tensor) -> Tensor:
        return strides * REACH

    def in_picture(self, logits: Tensor, size: Sequence[Any]) -> Tensor:
        stride = self.head.prior_generator.strides[0][0]
        return F.interpolate(logits, scale_factor=stride, mode='bilinear')[..., :size[0], :size[1]].sigmoid()
