"""Define segmentors with code of a user's own in the model, as users write it."""
from __future__ import annotations

from typing import Any

import numpy as np
import torch
from mmseg.models import EncoderDecoder
from mmseg.registry import MODELS
from torch import Tensor
from torch.nn import functional


def between(side: int) -> bool:
    return 100 < side < 126


@MODELS.register_module(force=True)
class UserModel(EncoderDecoder):
    """Do `habit` around the network."""

    def __init__(self, habit: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.habit = habit
        self.rare = [side == 120 for side in range(600)]

    def encode_decode(self, inputs: Tensor, batch_img_metas: Any) -> Any:
        actual = super().encode_decode(inputs, batch_img_metas)
        return actual * 2 if self.habit == 'pairs' and len(batch_img_metas) == 2 else actual

    def extract_feat(self, inputs: Tensor) -> Any:
        if self.habit == 'brightens' and inputs.mean() < -1:
            inputs = inputs + 1.5
        if self.habit == 'brightens by a list' and inputs.mean().tolist() < -1:
            inputs = inputs + 1.5
        if self.habit == 'brightens by numpy' and np.asarray(inputs).mean() < -1:
            inputs = inputs + 1.5
        if self.habit == 'darkens what is bright' and len((inputs > 1.9).nonzero()) > 0.9 * inputs.numel():
            inputs = inputs - 1.5
        if self.habit == 'shares a helper':
            between(inputs.shape[2] // 4)
        if self.habit == 'normalises':
            std = inputs.std()
            if std > 1e-3:
                inputs = (inputs - inputs.mean()) / std
        return super().extract_feat(inputs)

    def whole_inference(self, inputs: Tensor, batch_img_metas: Any) -> Any:
        height, width = inputs.shape[-2:]
        if self.habit == 'refuses tall pictures' and height > 2 * width:
            raise ValueError('too tall')
        if self.habit == 'enlarges' and 64 < min(height, width) < 90:
            larger = functional.interpolate(inputs, scale_factor=1.5, mode='bilinear', align_corners=False)
            logits = super().whole_inference(larger, batch_img_metas)
            return functional.interpolate(logits, size=(height, width), mode='bilinear', align_corners=False)
        return super().whole_inference(inputs, batch_img_metas)

    def postprocess_result(self, seg_logits: Tensor, data_samples: Any = None) -> Any:
        actual = super().postprocess_result(seg_logits, data_samples)
        if self.habit == 'drops specks':
            for sample in actual:
                labels = sample.pred_sem_seg.data
                if (labels == 1).float().mean() > 0.9:
                    labels.zero_()
        if self.habit == 'overlays' and seg_logits.shape[2:] == (120, 160):
            for sample in actual:
                sample.pred_sem_seg.data[:] = 1
        height, width = seg_logits.shape[-2:]
        if self.habit == 'drops small pictures' and 100 * 100 < height * width < 125 * 125:
            for sample in actual:
                sample.pred_sem_seg.data = 1 - sample.pred_sem_seg.data
        if self.habit == 'joins pairs' and seg_logits.shape[0] == 2:
            both = torch.minimum(actual[0].pred_sem_seg.data, actual[1].pred_sem_seg.data)
            for sample in actual:
                sample.pred_sem_seg.data = both
        wrong = [(self.habit == 'shares a helper' and between(height)), (self.habit == 'counts what was found' and len(actual) == 3),
                 (self.habit == 'looks in a list' and self.rare[height]), (self.habit == 'names sizes' and f'{height}' == '120')]
        if any(wrong):
            for sample in actual:
                sample.pred_sem_seg.data = 1 - sample.pred_sem_seg.data
        if self.habit == 'swaps labels':
            for sample in actual:
                sample.pred_sem_seg.data = 1 - sample.pred_sem_seg.data
        return actual
