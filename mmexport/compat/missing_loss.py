"""Give heads of mmdet an attribute that the post-processing of their base class reads.

``BaseDenseHead._predict_by_feat_single`` of mmdet 3.2.0 and 3.3.0 asks ``self.loss_cls`` whether it has activations of its own. SSD's
head has no such attribute, so that no SSD answers there (mmdetection issues 11063, 11305 and 11780). With None it answers as it does in
mmdet 3.1.0.
"""
from __future__ import annotations

import sys
from typing import Any

from torch import nn

REMARK = '{} has no loss_cls, which mmdet 3.2.0 and 3.3.0 ask for: eager ran with None for it'


def give_missing_losses(model: nn.Module) -> None:
    """Set ``loss_cls`` to None in heads that are asked for it in vain."""
    base: Any = sys.modules.get('mmdet.models.dense_heads.base_dense_head')
    for head in model.modules() if base else ():
        if getattr(type(head), '_predict_by_feat_single', None) is base.BaseDenseHead._predict_by_feat_single \
                and not hasattr(head, 'loss_cls'):
            head.loss_cls = None  # type: ignore[assignment]
