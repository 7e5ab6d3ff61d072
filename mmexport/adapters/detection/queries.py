"""Export box detection by queries: mmdet's DETR and its relatives, which suppress nothing."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...checker.kinds.detections import NAMES
from ...checker.rules.continuous import competing_scale
from ...errors import UnsupportedModelError
from ...ops.ranking import rows_at
from ...ops.sigmoid import sigmoid
from ...registry import ADAPTERS
from ...utils.override import override
from ..base import Adapter
from ..image_metas import image_metas, padded_metas
from ..specs import OutputSpec
from .boxes.decoders import check_owners, owners
from .boxes.evidence import score_slack
from .detection import Detection, on_cpu
from .selection import PLACES, selection, selects_places

# Rows after the cut that are looked at.
BEYOND = 20
# The heads whose `predict` computes the outputs of all layers and decides by `predict_by_feat`.
PREDICT = ('DETRHead', 'ConditionalDETRHead', 'DABDETRHead', 'DeformableDETRHead')


class _Reached(Exception):
    """Carry the outputs of a head."""

    def __init__(self, outputs: tuple[Any, ...]) -> None:
        super().__init__()
        self.outputs = outputs


@ADAPTERS.register_module()
class QueryDetection(Detection):
    """Give the boxes of mmdet's query decoders.

    ``raw``: `cls_logits` (N, Q, C) and `box_preds` (N, Q, 4), centre and size as shares of the picture, of the last decoder layer. Where
    the queries are places of the picture, `places` (N, Q), int64: which, counted through the levels.

    ``final``: `boxes` (N, K, 4), `scores` (N, K), `labels` (N, K), the best first, and `num` (N,), which is K, the test_cfg's max_per_img.

    Source: mmdet/models/dense_heads/detr_head.py (``_predict_by_feat_single``).
    """

    task = 'detection (queries)'

    @classmethod
    def variant(cls, option: str) -> type[Adapter] | None:
        from .padded import PaddedQueries, with_img_shape
        return with_img_shape(cls, PaddedQueries) if option == 'img_shape' else None

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        return hasattr(model, 'forward_transformer') and hasattr(getattr(model, 'bbox_head', None), '_predict_by_feat_single')

    def check_head(self) -> None:
        owner = owners(self.head)[1]
        if owner != 'DETRHead':
            raise UnsupportedModelError(f'{type(self.head).__name__} decides by a _predict_by_feat_single of {owner}, which mmexport does '
                                        'not know: use --outputs raw')
        check_owners(self.head, ('predict',), PREDICT)
        self.check_rows(int(self._part('num_queries')))

    def check_rows(self, queries: int) -> None:
        """Raise if more rows are asked for than `queries` give. mmdet fails at every picture then."""
        if self.limit > (rows := self._available(queries)):
            raise UnsupportedModelError(f'test_cfg.max_per_img is {self.limit}, and {queries} queries give {rows} rows: mmdet fails with '
                                        'it. Set it lower, or use --outputs raw')

    def _available(self, queries: int) -> int:
        """Return how many rows there are to choose from: each query with each class, or with its best one."""
        return queries * (self.num_classes if self.head.loss_cls.use_sigmoid else 1)

    @property
    def limit(self) -> int:
        return int((self.head.test_cfg or {}).get('max_per_img', self.model.num_queries))

    @property
    def raw_specs(self) -> tuple[OutputSpec, ...]:
        places = (OutputSpec(PLACES, 'int64', ('batch', 'query'), PLACES),) if selects_places(self.model) else ()
        return (OutputSpec('cls_logits', 'float32', ('batch', 'query', 'class'), 'queries'),
                OutputSpec('box_preds', 'float32', ('batch', 'query', 'box'), 'queries'), *places)

    def raw(self, image: Tensor) -> tuple[Tensor, ...]:
        return self.run_within(image, None)[0]

    def run_with_evidence(self, image: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        return self.run_within(image, None)

    def run_within(self, image: Tensor, sizes: Tensor | None) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """Return the outputs of `raw_specs`, and the scores of all places that queries may be.

        Args:
            sizes: height and width (N, 2); what lies beyond them is masked.
        """
        from mmdet.structures import DetDataSample
        samples = [DetDataSample(metainfo=meta) for meta in (image_metas(image) if sizes is None else padded_metas(image, sizes))]
        with selection(self.model, self.followed.get(PLACES)) as chosen:
            inputs: Mapping[str, Any] = self.model.forward_transformer(self.model.extract_feat(image), samples)  # type: ignore[operator]
        outputs = self._decoded(inputs, samples)
        places = chosen.pop(PLACES, None)
        return (outputs[0][-1], outputs[1][-1], *(() if places is None else (places,))), chosen

    def _decoded(self, inputs: Mapping[str, Any], samples: list[Any]) -> tuple[Any, ...]:
        """Return what the head's `predict` gives to `predict_by_feat`. What a subclass does with its results afterwards is not run."""
        def reached(*outputs: Any, **_: Any) -> None:
            raise _Reached(outputs)

        with override(self.head, 'predict_by_feat', reached):
            try:
                self.head.predict(**inputs, batch_data_samples=samples, rescale=False)
            except _Reached as exc:
                return exc.outputs
        raise UnsupportedModelError(f'{type(self.head).__name__}.predict does not call predict_by_feat, and mmexport takes what that is '
                                    'given')

    def without_padding(self, raw: tuple[Tensor, ...], image: Tensor, size: tuple[int, int], expected: dict[str, Tensor],
                        evidence: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the detections of a network that is told of the padding."""
        sizes = image.new_tensor([size]).expand(image.shape[0], -1)
        raw, _ = self.run_within(image, sizes)
        outputs = dict(zip((*NAMES, 'masks'), self.kept_within(raw, sizes), strict=False))
        return on_cpu(outputs), on_cpu(self.close_calls_within(raw, sizes))

    def kept_within(self, raw: tuple[Tensor, ...], sizes: Tensor) -> tuple[Tensor, ...]:
        boxes, scores, labels, _ = self.best(raw, sizes, self.limit)
        return boxes, scores, labels, (scores[:, 0] * 0).to(torch.int64) + self.limit

    def largest_logit(self, raw: tuple[Tensor, ...]) -> float:
        return competing_scale(raw[0], 2)

    def best(self, raw: tuple[Tensor, ...], sizes: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return boxes (N, count, 4), scores, labels and queries (N, count) of the best scores."""
        logits, preds = raw[:2]
        if self.head.loss_cls.use_sigmoid:
            scores, pairs = sigmoid(logits).flatten(1).topk(count, dim=1)
            labels, query = pairs % self.num_classes, torch.div(pairs, self.num_classes, rounding_mode='floor')
        else:
            best, classes = logits.softmax(dim=-1)[..., :-1].max(dim=-1)
            scores, query = best.topk(count, dim=1)
            labels = classes.gather(1, query)
        return self.corners(rows_at(preds, query), sizes), scores, labels, query

    def corners(self, preds: Tensor, sizes: Tensor) -> Tensor:
        """Return boxes (N, K, 4) in pixels, within the picture, of centre and size as shares of it."""
        centre, size = preds.split(2, dim=2)
        sides = sizes.flip(1)[:, None].to(preds)
        return torch.cat([torch.minimum((centre + sign * size) * sides, sides).clamp(min=0) for sign in (-0.5, 0.5)], dim=2)

    def close_calls_within(self, raw: tuple[Tensor, ...], sizes: Tensor) -> dict[str, Tensor]:
        """Return which rows tie at the cut with those that follow it."""
        available = self._available(raw[0].shape[1])
        boxes, scores, labels, _ = self.best(raw, sizes, min(self.limit + BEYOND, available))
        slack = score_slack(scores, self.largest_logit(raw))
        if available <= self.limit:
            return {'row_slack': slack}
        kept, others = slice(0, self.limit), slice(self.limit, None)
        unsure = scores[:, kept] - scores[:, self.limit, None] <= slack[:, kept] + slack[:, self.limit, None]
        maybe = torch.cat([boxes, scores[..., None], labels[..., None].to(boxes)], dim=2)[:, others].clone()
        apart = scores[:, self.limit - 1, None] - scores[:, others] > slack[:, others] + slack[:, self.limit - 1, None]
        maybe[..., 5] = torch.where(apart, torch.full_like(maybe[..., 5], -1.0), maybe[..., 5])
        return {'unsure': unsure, 'maybe': maybe, 'row_slack': slack[:, kept]}
