"""Semantic segmentation with one decode head, or a cascade of them (mmseg's EncoderDecoder family)."""
from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..answering import answering
from ..registry import ADAPTERS
from .base import Adapter, OutputSpec
from .points import mixed_from, points_at_the_edge, recorded_points


class Size(tuple):  # type: ignore[type-arg]
    """A size that is its own copy: data samples copy their metas deeply, and a symbolic size hangs on all that is known of it."""

    def __deepcopy__(self, memo: Any) -> Size:
        return self


def image_metas(image: Tensor) -> list[dict[str, Any]]:
    """Metas that say: the picture fills the input, nothing is padded. One stands for all where the batch is open."""
    size, batch = Size(image.shape[2:]), image.shape[0]
    return [dict(img_shape=size, ori_shape=size, pad_shape=size, batch_input_shape=size, padding_size=[0, 0, 0, 0])
            for _ in range(1 if isinstance(batch, torch.SymInt) else int(batch))]


@ADAPTERS.register_module()
class Segmentation(Adapter):
    """``raw``: `logits` (N, C, h, w) of the last decode head, before the final resize.
    ``final``: `labels` (N, H, W) int32 and `scores`, the softmax (one channel: sigmoid) of the chosen label.
    """

    task = 'semantic'

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        head = _last_head(model)
        return hasattr(model, 'encode_decode') and hasattr(head, 'predict_by_feat') and not (
            hasattr(head, 'mask_embed') or hasattr(head, 'rec_with_attnbias'))

    @property
    def head(self) -> Any:
        return _last_head(self.model)

    @property
    def num_classes(self) -> int:
        return int(self.head.num_classes)

    @property
    def specs(self) -> tuple[OutputSpec, ...]:
        if self.outputs == 'raw':
            return (OutputSpec('logits', 'float32', ('batch', 'class', 'h', 'w'), 'pixels'),)
        return (OutputSpec('labels', 'int32', ('batch', 'height', 'width'), 'labels'),
                OutputSpec('scores', 'float32', ('batch', 'height', 'width'), 'map'))

    def raw(self, image: Tensor) -> tuple[Tensor, ...]:
        with answering(self.head, 'predict_by_feat', lambda logits, *args, **kwargs: logits):
            return (self.model.encode_decode(image, image_metas(image)),)  # type: ignore[operator]

    def watch(self, image: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        with recorded_points(self.head) as choices:
            raw = self.raw(image)
        return raw, {'exempt': points_at_the_edge(choices)} if choices else {}

    def final(self, raw: tuple[Tensor, ...], image: Tensor) -> tuple[Tensor, ...]:
        logits = self.full_size(raw, image)
        if logits.shape[1] == 1:
            scores = logits[:, 0].sigmoid()
            return (scores > self.head.threshold).to(torch.int32), scores
        best, labels = logits.max(dim=1)
        return labels.to(torch.int32), (best - logits.logsumexp(dim=1)).exp()

    def full_size(self, raw: tuple[Tensor, ...], image: Tensor) -> Tensor:
        logits: Tensor = self.head.predict_by_feat(raw[0], image_metas(image))
        return logits

    def evidence(self, raw: tuple[Tensor, ...], image: Tensor, seen: dict[str, Tensor]) -> dict[str, Tensor]:
        """`margin` (N, H, W): how far the chosen label is ahead of the next, in units of the logits' scale. `next` (N, 1 to 3, H,
        W): those behind it. `exempt` (N, H, W), with PointRend's head: what is mixed from points at the edge of its choice.
        """
        exempt = {name: mixed_from(edge, image.shape[2:]) for name, edge in seen.items()}
        return {**self._margin(raw, image), **exempt}

    def _margin(self, raw: tuple[Tensor, ...], image: Tensor) -> dict[str, Tensor]:
        logits = self.full_size(raw, image)
        scale = logits.abs().max().clamp_min(1e-12)
        if logits.shape[1] == 1:
            threshold = float(self.head.threshold)
            edge = math.log(threshold / (1 - threshold))
            return {'margin': (logits[:, 0] - edge).abs() * 2 / scale, 'next': (logits <= edge).to(torch.int32)}
        top, index = logits.topk(min(4, logits.shape[1]), dim=1)
        return {'margin': (top[:, 0] - top[:, 1]) / scale, 'next': index[:, 1:].to(torch.int32)}

    def read(self, samples: list[Any]) -> dict[str, Tensor]:
        return {'labels': torch.stack([sample.pred_sem_seg.data[0] for sample in samples]).to(torch.int32)}

    def notes(self) -> dict[str, Any]:
        test_cfg = self.model.test_cfg
        if test_cfg.get('mode', 'whole') != 'slide':  # type: ignore[union-attr, operator]
            return {}
        return {'sliding': dict(window=list(test_cfg.crop_size), stride=list(test_cfg.stride),  # type: ignore[union-attr, arg-type]
                                note="the file holds one window; sliding and averaging overlaps are the caller's")}


def _last_head(model: nn.Module) -> Any:
    head = getattr(model, 'decode_head', None)
    return head[-1] if isinstance(head, nn.ModuleList) else head
