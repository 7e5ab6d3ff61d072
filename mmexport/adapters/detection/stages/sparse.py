"""Export Sparse R-CNN and QueryInst: learned regions that a cascade of heads moves, without suppression."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ....ops.ranking import rows_at
from ....registry import ADAPTERS
from ...specs import OutputSpec
from ..boxes.decoders import check_owners
from ..boxes.dense import decoded
from ..queries import QueryDetection
from . import masks
from .mask_evidence import MovedMasks, largest_change, moved_boxes, sizes_of_masks_in_doubt, with_moves
from .regions import extractors_of, heads_of, rois_of
from .roi_masks import RoiMasks

# The class that defines the methods which are replaced here.
HEAD = 'SparseRoIHead'


@ADAPTERS.register_module()
class SparseDetection(RoiMasks, QueryDetection):
    """Give the boxes of Sparse R-CNN, and boxes and masks of QueryInst.

    ``raw``: `cls_logits` (N, Q, C) and `box_preds` (N, Q, 4), corners in pixels, of the last stage; with masks also `mask_vectors`
    (N, Q, D), which make the layers of each query's mask, and `features_0` and so on, the maps that its region is cut from.

    ``final``: as `QueryDetection`; with masks also `masks` (N, K, h, w), logits of each row's label within its box.

    Source: mmdet/models/roi_heads/sparse_roi_head.py, mmdet/models/dense_heads/embedding_rpn_head.py.
    """

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        return hasattr(getattr(model, 'rpn_head', None), 'init_proposal_features') and hasattr(model, 'roi_head')

    def check_head(self) -> None:
        roi_head = self._roi_head
        check_owners(roi_head, ('predict',), ('BaseRoIHead',))
        check_owners(roi_head, ('predict_bbox', '_bbox_forward'), (HEAD,))
        self.check_rows(int(self._part('rpn_head').num_proposals))
        if self.has_masks:
            check_owners(roi_head, masks.ROI_METHODS, (HEAD,))
            for head in masks.heads_of(roi_head):
                check_owners(head, masks.METHODS, masks.HEADS)

    @property
    def raw_specs(self) -> tuple[OutputSpec, ...]:
        if not self.has_masks:
            return super().raw_specs
        features = (OutputSpec(f'features_{level}', 'float32', ('batch', 'channel', 'h', 'w'), 'pixels')
                    for level in range(masks.extractors_of(self._roi_head)[-1].num_inputs))
        return (*super().raw_specs, OutputSpec('mask_vectors', 'float32', ('batch', 'query', 'channel'), 'queries'), *features)

    @property
    def _roi_head(self) -> Any:
        return self._part('roi_head')

    @property
    def head(self) -> Any:
        return heads_of(self._roi_head)[-1]

    @property
    def limit(self) -> int:
        return int(self._roi_head.test_cfg.max_per_img)

    def run_within(self, image: Tensor, sizes: Tensor | None) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        sizes = self.sizes_of(image) if sizes is None else sizes.to(image)
        features, rpn = self.model.extract_feat(image), self._part('rpn_head')  # type: ignore[operator]
        centre, size = rpn.init_proposal_bboxes.weight.expand(image.shape[0], -1, -1).split(2, dim=2)
        sides = sizes.flip(1).repeat(1, 2)[:, None]
        boxes = torch.cat([centre - 0.5 * size, centre + 0.5 * size], dim=2) * sides
        vectors = rpn.init_proposal_features.weight.expand(image.shape[0], -1, -1)
        for head, extractor in zip(heads_of(self._roi_head), extractors_of(self._roi_head), strict=True):
            regions = extractor(features[:extractor.num_inputs], rois_of(boxes))
            logits, deltas, vectors, of_masks = head(regions, vectors)
            boxes = decoded(head.bbox_coder, boxes, deltas, sizes)
        if not self.has_masks:
            return (logits, boxes), {}
        return (logits, boxes, of_masks, *features[:masks.extractors_of(self._roi_head)[-1].num_inputs]), {}

    def kept_within(self, raw: tuple[Tensor, ...], sizes: Tensor) -> tuple[Tensor, ...]:
        if not self.has_masks:
            return super().kept_within(raw, sizes)
        boxes, scores, labels, query = self.best(raw, sizes, self.limit)
        num = (scores[:, 0] * 0).to(torch.int64) + self.limit
        return boxes, scores, labels, num, self._masks(raw, boxes, labels, query)

    def _masks(self, raw: tuple[Tensor, ...], boxes: Tensor, labels: Tensor, query: Tensor) -> Tensor:
        """Return the logits (N, K, h, w) of the masks of boxes (N, K, 4), each of its label, by the vectors of their queries (N, K)."""
        extractor, head = masks.extractors_of(self._roi_head)[-1], masks.heads_of(self._roi_head)[-1]
        logits = head(extractor(list(raw[3:]), rois_of(boxes)), rows_at(raw[2], query))
        return masks.of_label(logits.unflatten(0, boxes.shape[:2]), labels)

    def close_calls_within(self, raw: tuple[Tensor, ...], sizes: Tensor) -> dict[str, Tensor]:
        doubts = super().close_calls_within(raw, sizes)
        if not self.has_masks:
            return doubts
        boxes, _, labels, query = self.best(raw, sizes, self.limit)
        slack = largest_change([self._masks(raw, each, labels, query) for each in with_moves(boxes)])
        return {**doubts, 'mask_slack': slack, 'mask_unsure': sizes_of_masks_in_doubt(masks.extractors_of(self._roi_head)[-1:], boxes)}

    def masks_where_moved(self, raw: tuple[Tensor, ...], sizes: Tensor, rows: Sequence[Tensor]) -> MovedMasks:
        query, boxes = self.best(raw, sizes, self.limit)[3], list(moved_boxes(rows[0]))
        return MovedMasks(boxes, [self._masks(raw, each, rows[2], query) for each in boxes])

    def corners(self, preds: Tensor, sizes: Tensor) -> Tensor:
        return preds
