"""Replace the forward of TOOD's head, which loops over the batch."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mmexport.patching import Patch
from mmexport.registry import PATCHES


@PATCHES.register_module()
class TaskAlignedHead(Patch):
    """Repeat the anchors of TOOD's head for the batch by tensor operations.

    Upstream's Python loop fixes a trace to the batch of its example.

    A test compares it with the replaced method, for both types of anchors.

    Paper: TOOD, ICCV 2021. Source: mmdet/models/dense_heads/tood_head.py, ``TOODHead.forward``.
    """

    targets = ('mmdet.models.dense_heads.tood_head.TOODHead.forward',)
    upstream = 'mmdet 3.3.0'

    def replacement(self, target: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return _forward


def _forward(head: Any, feats: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    from mmdet.models.dense_heads import tood_head
    scores, boxes = [], []
    for level, (x, scale) in enumerate(zip(feats, head.scales, strict=False)):
        outputs = []
        for convolution in head.inter_convs:
            x = convolution(x)
            outputs.append(x)
        features = torch.cat(outputs, dim=1)
        mean = F.adaptive_avg_pool2d(features, (1, 1))
        # It is looked up here because another patch replaces it.
        scores.append(tood_head.sigmoid_geometric_mean(head.tood_cls(head.cls_decomp(features, mean)), head.cls_prob_module(features)))
        predicted = _boxes(head, level, scale, head.tood_reg(head.reg_decomp(features, mean)))
        sampled = head.deform_sampling(predicted.contiguous(), head.reg_offset_module(features).contiguous())
        # Sampling moves each side on its own: where sides cross, the box from before it stays.
        crossed = ((sampled[:, :2] > sampled[:, 2:]).any(dim=1, keepdim=True)).expand_as(sampled)
        boxes.append(torch.where(crossed, predicted, sampled))
    return tuple(scores), tuple(boxes)


def _boxes(head: Any, level: int, scale: Any, predicted: Tensor) -> Tensor:
    """Return boxes (N, 4, h, w) in strides of a level: around its centres, or as deltas of its anchors."""
    height, width = predicted.shape[2:]
    stride = head.prior_generator.strides[level][0]
    anchors = head.prior_generator.single_level_grid_priors((height, width), level, device=predicted.device)
    if head.anchor_type == 'anchor_free':
        distances = scale(predicted.exp()).float()
        centres = (head.anchor_center(anchors) / stride).t().reshape(2, height, width)
        return torch.cat([centres - distances[:, :2], centres + distances[:, 2:]], dim=1)
    deltas = scale(predicted).float().flatten(2).transpose(1, 2).reshape(-1, 4)
    repeated = anchors.expand(predicted.shape[0], -1, -1).reshape(-1, 4)
    decoded: Tensor = head.bbox_coder.decode(repeated, deltas)
    return decoded.reshape(-1, height, width, 4).permute(0, 3, 1, 2) / stride
