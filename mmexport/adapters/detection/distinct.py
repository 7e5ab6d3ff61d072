"""Export DDQ, whose decoder leaves out queries that resemble better ones."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...checker.rules.continuous import competing_scale
from ...ops.distinct import threshold_of
from ...registry import ADAPTERS
from ..specs import OutputSpec
from .distinct_choices import DISTINCT, distinct_choices
from .queries import QueryDetection
from .selection import PLACES

# The logits of a query that is left out: its scores are 1e-13, and the scale by which errors are judged stays that of logits.
LEFT_OUT = -30.0


@ADAPTERS.register_module()
class DistinctQueryDetection(QueryDetection):
    """Give the boxes of mmdet's DDQ DETR.

    ``raw``: as `QueryDetection`; the logits of queries that the last layer does not count are -30. Also the choices that rounding may
    decide: `places` (N, Q), int64, of which the queries are made, -1 where fewer differ enough; `distinct` (N, L - 1, Q), int64, 1 where
    a query stays after each layer but the last. ``final``: as `QueryDetection`.

    Source: mmdet/models/dense_heads/ddq_detr_head.py (``predict_by_feat``).
    """

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        return super().matches(model) and hasattr(model, 'dqs_cfg')

    @property
    def raw_specs(self) -> tuple[OutputSpec, ...]:
        return (*super().raw_specs, OutputSpec(PLACES, 'int64', ('batch', 'query'), 'distinct'),
                OutputSpec(DISTINCT, 'int64', ('batch', 'layer', 'query'), 'distinct'))

    def run_within(self, image: Tensor, sizes: Tensor | None) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        with distinct_choices(self.model, image.shape[0], self.followed) as choices:
            (logits, boxes), _ = super().run_within(image, sizes)
        state: Any = self.model.cache_dict
        counts = state['distinct_query_mask'][-1].unflatten(0, (-1, state['num_heads']))[:, 0, 0]
        raw = (torch.where(counts[..., None], logits, torch.full_like(logits, LEFT_OUT)), boxes, *choices.outputs())
        return raw, {**choices.evidence(), 'overlap': logits.new_tensor([threshold_of(state['dqs_cfg'])])}

    def largest_logit(self, raw: tuple[Tensor, ...]) -> float:
        return competing_scale(raw[0].masked_fill(raw[0] == LEFT_OUT, 0.0), 2)
