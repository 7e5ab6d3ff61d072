"""Export Sparse R-CNN: learned regions that a cascade of heads moves, without suppression."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...errors import UnsupportedModelError
from ...registry import ADAPTERS
from .decoders import owner_of
from .dense import decoded
from .queries import QueryDetection
from .regions import extractors_of, heads_of, rois_of

# The methods that are replaced here, with the classes that define them.
KNOWN = {'predict': 'BaseRoIHead', 'predict_bbox': 'SparseRoIHead', '_bbox_forward': 'SparseRoIHead'}


@ADAPTERS.register_module()
class SparseDetection(QueryDetection):
    """Give the boxes of Sparse R-CNN.

    ``raw``: `cls_logits` (N, Q, C) and `box_preds` (N, Q, 4), corners in pixels, of the last stage. ``final``: as `QueryDetection`.

    Source: mmdet/models/roi_heads/sparse_roi_head.py, mmdet/models/dense_heads/embedding_rpn_head.py.
    """

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        return hasattr(getattr(model, 'rpn_head', None), 'init_proposal_features') and hasattr(model, 'roi_head')

    def check_head(self) -> None:
        roi_head = self._roi_head
        for name, known in KNOWN.items():
            if (owner := owner_of(roi_head, name)) not in (known, 'StandardRoIHead'):
                raise UnsupportedModelError(f'{type(roi_head).__name__} decides by a {name} of {owner}, which mmexport does not know')
        if getattr(roi_head, 'mask_head', None) is not None:
            raise UnsupportedModelError(f'{type(roi_head).__name__} has a mask head for its queries, which mmexport does not know yet')

    @property
    def _roi_head(self) -> Any:
        return self._part('roi_head')

    @property
    def head(self) -> Any:
        return heads_of(self._roi_head)[-1]

    @property
    def limit(self) -> int:
        return int(self._roi_head.test_cfg.max_per_img)

    def raw(self, image: Tensor) -> tuple[Tensor, ...]:
        features, rpn = self.model.extract_feat(image), self._part('rpn_head')  # type: ignore[operator]
        centre, size = rpn.init_proposal_bboxes.weight.expand(image.shape[0], -1, -1).split(2, dim=2)
        sides = self.sizes_of(image).flip(1).repeat(1, 2)[:, None]
        boxes = torch.cat([centre - 0.5 * size, centre + 0.5 * size], dim=2) * sides
        vectors = rpn.init_proposal_features.weight.expand(image.shape[0], -1, -1)
        for head, extractor in zip(heads_of(self._roi_head), extractors_of(self._roi_head), strict=True):
            regions = extractor(features[:extractor.num_inputs], rois_of(boxes))
            logits, deltas, vectors, _ = head(regions, vectors)
            boxes = decoded(head.bbox_coder, boxes, deltas, self.sizes_of(image))
        return logits, boxes

    def corners(self, preds: Tensor, image: Tensor) -> Tensor:
        return preds
