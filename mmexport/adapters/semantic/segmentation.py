"""Export semantic segmentation with one decode head, or a cascade of them (mmseg's EncoderDecoder family)."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...checker.rules.continuous import competing_scale
from ...registry import ADAPTERS
from ...utils.override import override
from ..base import Adapter, OutputSpec
from ..image_metas import image_metas
from ..objectives import Objective
from .objectives import block_target, labels_decided, semantic_objective, two_sided
from .one_channel import OneChannel
from .points import mixed_from, points_at_the_edge, recorded_points


@ADAPTERS.register_module()
class Segmentation(Adapter):
    """Give label maps of mmseg's encoder-decoders.

    ``raw``: `logits` (N, C, h, w) of the last decode head, before the final resize.
    ``final``: `labels` (N, H, W) int32 and `scores`, the softmax (one channel: sigmoid) of the chosen label. With
    ``test_cfg.mode='slide'``: `logits` (N, C, H, W) of one window at its size, because labels of windows cannot be averaged where they
    overlap. Sliding stays outside the graph: the number of windows would be a loop over a size, which not every format can hold.
    """

    task = 'semantic'
    packages = ('mmsegmentation', 'onedl-mmsegmentation', 'mmpretrain')

    def __init__(self, model: nn.Module, outputs: str = 'final', normalize: bool = False) -> None:
        super().__init__(model, outputs, normalize)
        self.one_channel = OneChannel.of(model, self.head)

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        head = _last_head(model)
        # mmseg's model for depth has all that a segmentor has, and its values are no labels.
        if any(parent.__name__ == 'DepthEstimator' for parent in type(model).__mro__):
            return False
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
            return self.raw_specs
        if self.slides:
            return (OutputSpec('logits', 'float32', ('batch', 'class', 'height', 'width'), 'pixels'),)
        return (OutputSpec('labels', 'int32', ('batch', 'height', 'width'), 'labels'),
                OutputSpec('scores', 'float32', ('batch', 'height', 'width'), 'map'))

    @property
    def raw_specs(self) -> tuple[OutputSpec, ...]:
        return (OutputSpec('logits', 'float32', ('batch', 'class', 'h', 'w'), 'pixels'),)

    @property
    def slides(self) -> bool:
        """Return whether ``test_step`` slides a window over the picture and averages logits where windows overlap."""
        return str(getattr(self.model, 'test_cfg', {}).get('mode', 'whole')) == 'slide'

    @property
    def class_count(self) -> int:
        return 0 if self.slides else max(self.num_classes, 2) if self.one_channel else self.num_classes

    def decided(self, raw: tuple[Tensor, ...], image: Tensor) -> frozenset[int]:
        return labels_decided(self.final(raw, image)[0], self.class_count)

    def make_objective(self, raw: tuple[Tensor, ...], image: Tensor, target_classes: set[int], generator: torch.Generator) -> Objective:
        target = block_target(self.class_logits(raw, image), target_classes, generator)
        return lambda raw, image: semantic_objective(self.class_logits(raw, image), target)

    def class_logits(self, raw: tuple[Tensor, ...], image: Tensor) -> Tensor:
        """Return logits (N, C, H, W) whose argmax is the decision; for a sigmoid's one channel both sides of the threshold."""
        logits = self.full_size(raw, image)
        return two_sided(logits, self.one_channel.edge) if self.one_channel else logits

    def data_samples(self, image: Tensor) -> list[Any]:
        from mmseg.structures import SegDataSample
        return [SegDataSample(metainfo={**meta, 'scale_factor': (1.0, 1.0)}) for meta in image_metas(image)]

    def raw(self, image: Tensor) -> tuple[Tensor, ...]:
        with override(self.head, 'predict_by_feat', lambda logits, *args, **kwargs: logits):
            return (self.model.encode_decode(image, image_metas(image)),)  # type: ignore[operator]

    def run_with_evidence(self, image: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        with recorded_points(self.head) as choices:
            raw = self.raw(image)
        return raw, {'exempt': points_at_the_edge(choices)} if choices else {}

    def final(self, raw: tuple[Tensor, ...], image: Tensor) -> tuple[Tensor, ...]:
        logits = self.full_size(raw, image)
        if self.slides:
            return (logits,)
        if self.one_channel:
            return self.one_channel.decide(logits)
        best, labels = logits.max(dim=1)
        return labels.to(torch.int32), (best - logits.logsumexp(dim=1)).exp()

    def full_size(self, raw: tuple[Tensor, ...], image: Tensor) -> Tensor:
        logits: Tensor = self.head.predict_by_feat(raw[0], image_metas(image))
        return logits

    def evidence(self, raw: tuple[Tensor, ...], image: Tensor, recorded: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the margins of the decisions.

        `margin` (N, H, W): how far the chosen label is ahead of the next, in units of the logits' scale. `next` (N, 1 to 3, H,
        W): those behind it. `exempt` (N, H, W), with PointRend's head: what is mixed from points at the edge of its choice.
        """
        exempt = {name: mixed_from(edge, image.shape[2:]) for name, edge in recorded.items()}
        return exempt if self.slides else {**self._margin(raw, image), **exempt}

    def _margin(self, raw: tuple[Tensor, ...], image: Tensor) -> dict[str, Tensor]:
        logits = self.full_size(raw, image)
        scale = competing_scale(logits, 1)
        if self.one_channel:
            edge = self.one_channel.edge
            return {'margin': (logits[:, 0] - edge).abs() * 2 / scale, 'next': (logits <= edge).to(torch.int32)}
        top, index = logits.topk(min(4, logits.shape[1]), dim=1)
        return {'margin': (top[:, 0] - top[:, 1]) / scale, 'next': index[:, 1:].to(torch.int32)}

    def read(self, samples: list[Any]) -> dict[str, Tensor]:
        logits = torch.stack([sample.seg_logits.data for sample in samples])
        if self.slides:
            return {'logits': logits}
        labels = torch.stack([sample.pred_sem_seg.data[0] for sample in samples]).to(torch.int32)
        return {'labels': labels, 'scores': self.scores_of(logits)}

    def scores_of(self, logits: Tensor) -> Tensor:
        """Return the score (N, H, W) of the chosen label from what ``test_step`` gives as logits."""
        if self.one_channel:
            return self.one_channel.scores_of(logits)
        best, _ = logits.max(dim=1)
        return (best - logits.logsumexp(dim=1)).exp()

    def notes(self) -> dict[str, Any]:
        notes: dict[str, Any] = {}
        if self.one_channel:
            notes['one_channel'] = dict(activation='sigmoid', threshold=self.one_channel.least_score, labels='score > threshold is label 1')
        if self.slides:
            test_cfg: Any = self.model.test_cfg
            notes['sliding'] = dict(window=list(test_cfg.crop_size), stride=list(test_cfg.stride),
                                    note='the file gives the logits of one window; slide it by the stride from the top left, and shift '
                                    'windows that would reach beyond the picture back to its edge; add the logits where windows overlap, '
                                    'divide by their number, then take the argmax (one channel: sigmoid and threshold). The file takes no '
                                    'picture that is smaller than the window')
        return notes


def _last_head(model: nn.Module) -> Any:
    head = getattr(model, 'decode_head', None)
    return head[-1] if isinstance(head, nn.ModuleList) else head
