"""Export semantic segmentation by mask classification: mmseg's Mask2Former and MaskFormer heads."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...registry import ADAPTERS
from ..attention_masks import WithAttentionMasks
from ..image_metas import image_metas
from ..objectives import several_labels
from ..specs import OutputSpec, mask_specs
from .segmentation import Segmentation


@ADAPTERS.register_module()
class SemanticMasks(WithAttentionMasks, Segmentation):
    """Give label maps of mmseg's mask classifiers.

    ``raw``: `cls_logits` (N, Q, C+1), `mask_logits` (N, Q, h, w) of the last decoder layer. Files of Mask2Former are checked with
    `attention` (N, Q, cells) too, which they do not give.
    ``final``: `labels` (N, H, W) int32 and `scores`, the winning class's sum over queries of class times mask probability.
    """

    task = 'semantic (mask classification)'

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        head = getattr(model, 'decode_head', None)
        return hasattr(model, 'encode_decode') and hasattr(head, 'cls_embed') and hasattr(head, 'mask_embed')

    @property
    def specs(self) -> tuple[OutputSpec, ...]:
        return mask_specs() if self.outputs == 'raw' else super().specs

    @property
    def mask_head(self) -> Any:
        return self.head

    def evidence(self, raw: tuple[Tensor, ...], image: Tensor, recorded: dict[str, Tensor]) -> dict[str, Tensor]:
        return super().evidence(raw, image, {})  # What is recorded is of the attention masks, raw outputs.

    def logits(self, image: Tensor) -> tuple[Tensor, Tensor]:
        from mmseg.structures import SegDataSample
        features = self.model.extract_feat(image)  # type: ignore[operator]
        cls_logits, mask_logits = self.head(features, [SegDataSample(metainfo=meta) for meta in image_metas(image)])
        return cls_logits[-1], mask_logits[-1]

    def full_size(self, raw: tuple[Tensor, ...], image: Tensor) -> Tensor:
        """Return per-class sums (N, C, H, W), as in mmseg/models/decode_heads/mask2former_head.py."""
        cls_logits, mask_logits = raw[:2]
        masks = F.interpolate(mask_logits, size=image.shape[2:], mode='bilinear', align_corners=False).sigmoid()
        return torch.einsum('bqc,bqhw->bchw', cls_logits.softmax(dim=-1)[..., :-1], masks)

    def final(self, raw: tuple[Tensor, ...], image: Tensor) -> tuple[Tensor, ...]:
        sums = self.full_size(raw, image)
        if self.slides:
            return (sums,)
        scores, labels = sums.max(dim=1)
        return labels.to(torch.int32), scores

    def decides_enough(self, raw: tuple[Tensor, ...], image: Tensor) -> bool:
        return several_labels(self.final(raw, image)[0])

    def class_logits(self, raw: tuple[Tensor, ...], image: Tensor) -> Tensor:
        return self.full_size(raw, image).clamp_min(1e-6).log()

    def scores_of(self, logits: Tensor) -> Tensor:
        return logits.max(dim=1).values
