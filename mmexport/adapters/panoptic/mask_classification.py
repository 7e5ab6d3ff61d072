"""Export panoptic and instance segmentation by mask classification: mmdet's Mask2Former and MaskFormer."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import UnsupportedModelError
from ...ops.mask_statistics import MaskStatistics, mask_statistics, masks_at
from ...registry import ADAPTERS
from ..attention_masks import WithAttentionMasks
from ..base import OutputSpec
from ..image_metas import image_metas
from ..objectives import SEGMENTS, Objective, several_labels
from ..specs import mask_specs
from .boxes import boxes_around, boxes_of
from .evidence import instance_evidence, panoptic_evidence
from .fusion import candidates_of, segment_map, top_queries, winning_weights
from .objectives import panoptic_objective, segment_targets


@ADAPTERS.register_module()
class MaskClassification(WithAttentionMasks):
    """Give panoptic maps and instances of mmdet's mask classifiers.

    ``raw``: `cls_logits` (N, Q, C+1) and `mask_logits` (N, Q, h, w) of the last decoder layer. Files of Mask2Former are checked with
    `attention` (N, Q, cells) too, which they do not give.
    ``final``, by the config's test_cfg: `panoptic` (N, H, W) int32 in mmdet's encoding (class + 1000 * instance, void =
    num_classes), and `boxes` (N, K, 4), `scores` (N, K), `labels` (N, K), `masks` (N, K, H, W), of which `num` (N) rows count.

    Source: mmdet/models/seg_heads/panoptic_fusion_heads/maskformer_fusion_head.py, whose loops over queries become tensor
    operations here, so that neither the batch nor the number of segments is fixed by a trace.
    """

    task = 'panoptic/instance'
    packages = ('mmdet',)

    def __init__(self, model: nn.Module, outputs: str = 'final', normalize: bool = False) -> None:
        super().__init__(model, outputs, normalize)
        cfg: Any = self.fusion.test_cfg or {}
        self.panoptic_on, self.instance_on = bool(cfg.get('panoptic_on', True)), bool(cfg.get('instance_on', False))
        if outputs == 'final' and cfg.get('semantic_on', False):
            raise UnsupportedModelError('test_cfg.semantic_on=True: mmdet itself has no semantic result for this head '
                                        '(MaskFormerFusionHead.semantic_postprocess); use --outputs raw, or switch it off with '
                                        '--cfg-options model.test_cfg.semantic_on=False')
        if outputs == 'final' and not (self.panoptic_on or self.instance_on):
            raise UnsupportedModelError('test_cfg asks for neither panoptic_on nor instance_on; use --outputs raw')

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        head = getattr(model, 'panoptic_head', None)
        return hasattr(model, 'panoptic_fusion_head') and hasattr(head, 'cls_embed') and hasattr(head, 'mask_embed')

    @property
    def fusion(self) -> Any:
        return self.model.panoptic_fusion_head

    @property
    def num_classes(self) -> int:
        return int(self.fusion.num_classes)

    @property
    def specs(self) -> tuple[OutputSpec, ...]:
        if self.outputs == 'raw':
            return mask_specs()
        panoptic = (OutputSpec('panoptic', 'int32', ('batch', 'height', 'width'), 'panoptic'),)
        instance = tuple(OutputSpec(name, dtype, ('batch', *axes), 'instance') for name, dtype, axes in (
            ('boxes', 'float32', ('row', 'box')), ('scores', 'float32', ('row',)), ('labels', 'int64', ('row',)),
            ('masks', 'bool', ('row', 'height', 'width')), ('num', 'int64', ())))
        return (panoptic if self.panoptic_on else ()) + (instance if self.instance_on else ())

    @property
    def mask_head(self) -> Any:
        return self.model.panoptic_head

    @property
    def class_count(self) -> int:
        return self.num_classes

    def decided(self, raw: tuple[Tensor, ...], image: Tensor) -> frozenset[int]:
        """Return the classes of kept segments; for instances alone, those that panoptic fusion would keep."""
        segments = self.panoptic(raw[0], enlarged(raw[1], image))[0].unique()
        return frozenset(int(segment) % 1000 for segment in segments if int(segment) != self.num_classes)

    def decides_enough(self, raw: tuple[Tensor, ...], image: Tensor) -> bool:
        segments = self.panoptic(raw[0], enlarged(raw[1], image))[0]
        return several_labels(segments) and int((segments.unique() != self.num_classes).sum()) >= SEGMENTS

    def make_objective(self, raw: tuple[Tensor, ...], image: Tensor, target_classes: set[int], generator: torch.Generator) -> Objective:
        threshold, masks = float(self.fusion.test_cfg.get('object_mask_thr', 0.8)), enlarged(raw[1], image)
        targets = [segment_targets(classes, mask, target_classes, threshold) for classes, mask in zip(raw[0], masks, strict=True)]
        return lambda raw, image: panoptic_objective(raw[0], enlarged(raw[1], image), targets, threshold)

    def data_samples(self, image: Tensor) -> list[Any]:
        from mmdet.structures import DetDataSample
        return [DetDataSample(metainfo={**meta, 'scale_factor': (1.0, 1.0)}) for meta in image_metas(image)]

    def logits(self, image: Tensor) -> tuple[Tensor, Tensor]:
        from mmdet.structures import DetDataSample
        features = self.model.extract_feat(image)  # type: ignore[operator]
        samples = [DetDataSample(metainfo=meta) for meta in image_metas(image)]
        cls_logits, mask_logits = self.mask_head(features, samples)
        return cls_logits[-1], mask_logits[-1]

    def final(self, raw: tuple[Tensor, ...], image: Tensor) -> tuple[Tensor, ...]:
        cls_logits, mask_logits = raw[:2]
        scores, classes, candidates = candidates_of(self.fusion, cls_logits)
        statistics = mask_statistics(mask_logits, image.shape[2:], winning_weights(scores, candidates), self.instance_on)  # type: ignore[arg-type]
        panoptic: tuple[Tensor, ...] = ()
        if self.panoptic_on:
            panoptic = (segment_map(self.fusion, scores, classes, candidates, statistics.winner, statistics.area, statistics.sure)[0],)
        return panoptic + (self._instances(cls_logits, statistics) if self.instance_on else ())

    def panoptic(self, cls_logits: Tensor, masks: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the segment map of enlarged masks (N, Q, H, W), and its intermediate decisions. `evidence` uses the decisions."""
        scores, classes, candidates = candidates_of(self.fusion, cls_logits)
        probabilities = masks.sigmoid()
        winner = (winning_weights(scores, candidates)[:, :, None, None] * probabilities).argmax(dim=1)
        area = (probabilities >= 0.5).flatten(2).sum(dim=2)
        sure = probabilities.gather(1, winner[:, None])[:, 0] >= 0.5
        result, decisions = segment_map(self.fusion, scores, classes, candidates, winner, area, sure)
        return result, {**decisions, 'probabilities': probabilities}

    def _instances(self, cls_logits: Tensor, statistics: MaskStatistics) -> tuple[Tensor, ...]:
        """Return rows in descending order of class score, things first; rows from `num` on are zero."""
        queries = top_queries(self.fusion, cls_logits)
        count, labels, thing, query = queries['count'], queries['labels'], queries['thing'], queries['query']
        assert statistics.columns is not None and statistics.rows is not None
        masks = statistics.masks_of(query, thing)
        boxes = boxes_around(statistics.columns, statistics.rows).gather(1, query[:, :, None].expand(-1, -1, 4)) * thing[:, :, None]
        scores = queries['scores'] * statistics.inside.gather(1, query) * thing
        return boxes, scores, torch.where(thing, labels, torch.zeros_like(labels)), masks, count

    def evidence(self, raw: tuple[Tensor, ...], image: Tensor, recorded: dict[str, Tensor]) -> dict[str, Tensor]:
        cls_logits, mask_logits = raw[:2]
        masks = enlarged(mask_logits, image)
        evidence: dict[str, Tensor] = {}
        if self.panoptic_on:
            evidence |= panoptic_evidence(self.panoptic(cls_logits, masks)[1], cls_logits, masks, self.fusion.test_cfg, self.num_classes)
        if self.instance_on:
            top = top_queries(self.fusion, cls_logits)
            evidence |= instance_evidence(masks_at(masks, top['query']), top, cls_logits)
        return evidence

    def undecided_by_padding(self, raw: tuple[Tensor, ...], image: Tensor, height: int, width: int) -> Tensor | None:
        """Return the pixels (N, height, width) that change without the padding: whether a segment is kept depends on areas."""
        from ...checker.rules.label_maps import renamed_after
        if not self.panoptic_on:
            return None
        cls_logits, mask_logits = raw[:2]
        masks = enlarged(mask_logits, image)
        padded = self.panoptic(cls_logits, masks)[0][:, :height, :width]
        cut, decisions = self.panoptic(cls_logits, masks[..., :height, :width])
        near = panoptic_evidence(decisions, cls_logits, masks, self.fusion.test_cfg, self.num_classes)['near']
        return near | (renamed_after(cut, padded) != cut)

    def without_padding(self, raw: tuple[Tensor, ...], image: Tensor, size: tuple[int, int], expected: dict[str, Tensor],
                        evidence: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        excused = self.undecided_by_padding(raw, image, *size)
        if excused is not None:
            near = evidence.get('near', torch.zeros_like(excused, device='cpu')).bool() | excused.cpu()
            evidence = {name: tensor for name, tensor in evidence.items() if name != 'candidates'} | {'near': near}
        if self.instance_on:
            expected = expected | {'boxes': boxes_of(expected['masks'])}
            # A row's score is a mean over its mask, from which mmdet leaves the padding out: any score may be.
            evidence = evidence | {'score_slack': torch.ones(())}
        return expected, evidence

    def notes(self) -> dict[str, Any]:
        things = int(self.fusion.num_things_classes)
        return {'segments': dict(encoding='panoptic = class + 1000 * instance; instance is 0 for stuff and counts from 1 for things',
                                 void=self.num_classes, things=list(range(things)), stuff=list(range(things, self.num_classes)))}

    def read(self, samples: list[Any]) -> dict[str, Tensor]:
        """Convert mmdet's rows, whose order is arbitrary because its `topk` does not sort; rows from `num` on are zero."""
        outputs: dict[str, Tensor] = {}
        if self.panoptic_on:
            outputs['panoptic'] = torch.stack([sample.pred_panoptic_seg.sem_seg[0] for sample in samples]).to(torch.int32)
        if self.instance_on:
            limit = int(self.fusion.test_cfg.get('max_per_image', 100))
            predictions = [sample.pred_instances for sample in samples]
            for name, key, dtype in (('boxes', 'bboxes', torch.float32), ('scores', 'scores', torch.float32),
                                     ('labels', 'labels', torch.int64), ('masks', 'masks', torch.bool)):
                outputs[name] = torch.stack([_padded(instances[key].to(dtype), limit) for instances in predictions])
            outputs['num'] = torch.tensor([len(instances) for instances in predictions])
        return outputs


def _padded(rows: Tensor, count: int) -> Tensor:
    return torch.cat([rows, rows.new_zeros((count - len(rows), *rows.shape[1:]))])


def enlarged(mask_logits: Tensor, image: Tensor) -> Tensor:
    """Return the logits of masks as large as the picture."""
    return F.interpolate(mask_logits, size=image.shape[2:], mode='bilinear', align_corners=False)
