"""Compute the masks of detections by the mask heads of a RoI head.

Sources: mmdet/models/roi_heads: standard_roi_head.py, cascade_roi_head.py, htc_roi_head.py, mask_scoring_roi_head.py,
mask_heads/fcn_mask_head.py. `pasted_masks` pastes them inside the graph, `results` outside the file.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ....utils.override import override
from ..boxes.decoders import owner_of
from ..boxes.filling import filled
from .points import POINTS, has_points, refined, sides
from .regions import HYBRID, Features, rois_of, stages_of
from .regions import ROI_HEADS as BOX_HEADS

# The methods that are replaced here, and the classes by which they are defined.
ROI_METHODS = ('predict_mask', '_mask_forward')
ROI_HEADS = (*BOX_HEADS, POINTS)
METHODS = ('predict_by_feat', '_predict_by_feat_single')
HEADS = ('FCNMaskHead',)
# Limit of the logit of a mean: float32 cannot distinguish probabilities closer to 0 or 1.
MOST_CERTAIN = 7.0


def masks_of(roi_head: Any, features: Features, boxes: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the masks (N, K, h, w) of boxes (N, K, 4), each of its label, and their quality (N, K).

    Scores are multiplied by the quality; it is None where the head says nothing of it. Masks of a cascade are the logits of the mean of its
    stages' probabilities, within +-7.
    """
    outputs = of_stages(roi_head, features, rois_of(boxes))
    by_class = [each['mask_preds'].unflatten(0, boxes.shape[:2]) for each in outputs]
    agnostic = heads_of(roi_head)[-1].class_agnostic
    if has_points(roi_head):
        return refined(roi_head, features, boxes, labels, outputs[0]['mask_preds']).masks.unflatten(0, boxes.shape[:2]), None
    logits = [each[:, :, 0] if agnostic else of_label(each, labels) for each in by_class]
    if scores_masks(roi_head):
        quality = roi_head.mask_iou_head(outputs[0]['mask_feats'], logits[0].flatten(0, 1)).unflatten(0, boxes.shape[:2])
        return logits[0], quality.gather(2, labels[..., None])[..., 0]
    return (_mean(logits) if isinstance(roi_head.mask_head, nn.ModuleList) else logits[0]), None


def scores_masks(roi_head: Any) -> bool:
    """Return whether a head says how good each mask is."""
    return getattr(roi_head, 'mask_iou_head', None) is not None


def of_label(logits: Tensor, labels: Tensor) -> Tensor:
    """Return of masks (N, K, C, h, w) those of the labels (N, K)."""
    index = labels[..., None, None, None].expand(-1, -1, 1, logits.shape[3], logits.shape[4])
    chosen: Tensor = logits.gather(2, index)[:, :, 0]
    return chosen


def _mean(logits: list[Tensor]) -> Tensor:
    """Return the logits of the mean probability."""
    # ``1 - p`` loses precision where p is near 1.
    positive, negative = (torch.stack([(sign * each).sigmoid() for each in logits]).mean(dim=0) for sign in (1, -1))
    return (positive.clamp(min=1e-6).log() - negative.clamp(min=1e-6).log()).clamp(-MOST_CERTAIN, MOST_CERTAIN)


def of_stages(roi_head: Any, features: Features, rois: Tensor) -> list[dict[str, Tensor]]:
    """Return the outputs of the stages whose `mask_preds` (R, C, h, w) mmdet averages."""
    if owner_of(roi_head, '_mask_forward') == HYBRID:
        # Every stage feeds the next one, and only the last one counts.
        outputs = roi_head._mask_forward(-1, features.levels, rois, semantic_feat=features.semantic, training=False)
        return [dict(mask_preds=each) for each in outputs['mask_preds']]
    stages = [[number] for number in range(len(heads_of(roi_head)))] if isinstance(roi_head.mask_head, nn.ModuleList) else [[]]
    return [roi_head._mask_forward(*stage, features.levels, rois) for stage in stages]


def heads_of(roi_head: Any) -> list[Any]:
    """Return the mask head of each stage."""
    return stages_of(roi_head.mask_head)


def extractors_of(roi_head: Any) -> list[Any]:
    """Return the mask RoI extractor of each stage."""
    return stages_of(roi_head.mask_roi_extractor)


def cells_of(roi_head: Any) -> tuple[int, int]:
    """Return height and width of a mask."""
    head = heads_of(roi_head)[-1]
    if has_points(roi_head):
        return sides(roi_head)[-1]
    height, width = extractors_of(roi_head)[-1].roi_layers[0].output_size
    times = int(head.scale_factor) if head.upsample_method else 1
    return times * int(height), times * int(width)


def read_masks(roi_head: Any, samples: list[Any], limit: int) -> Tensor:
    """Return the masks (N, limit, h, w) of data samples that were made inside `unpasted`; rows behind the last one are zero."""
    each = [sample.pred_instances.masks[:limit].float() for sample in samples]
    return torch.stack([filled(rows if len(rows) else rows.new_zeros(0, *cells_of(roi_head)), limit) for rows in each])


@contextmanager
def unpasted(roi_head: Any) -> Iterator[None]:
    """Let mmdet's own ``predict`` return masks as the head gives them, inside the block: logits, also of a cascade's probabilities."""
    def chosen(mask_preds: Tensor, bboxes: Tensor, labels: Tensor, *_: Any, activate_map: bool = False, **__: Any) -> Tensor:
        masks = mask_preds[:, 0] if heads_of(roi_head)[-1].class_agnostic else mask_preds[range(len(labels)), labels]
        return masks.double().logit().clamp(-MOST_CERTAIN, MOST_CERTAIN).to(masks) if activate_map else masks

    with ExitStack() as stack:
        for head in heads_of(roi_head):
            stack.enter_context(override(head, '_predict_by_feat_single', chosen))
        yield
