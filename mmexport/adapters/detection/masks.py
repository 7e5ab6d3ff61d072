"""Compute the masks of detections by the mask heads of a RoI head.

Sources: mmdet/models/roi_heads: standard_roi_head.py, cascade_roi_head.py, mask_heads/fcn_mask_head.py; pasting them into the picture is
left to the user of the file.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ...utils.override import override
from .decoders import owner_of
from .regions import HYBRID, Features, rois_of, semantic_extractors, sizes_in_doubt

# The methods that are replaced here, and the classes by which they are defined.
ROI_METHODS = ('predict_mask', '_mask_forward')
METHODS = ('predict_by_feat', '_predict_by_feat_single')
HEADS = ('FCNMaskHead',)
# Of the logit of a mean of probabilities: float32 does not tell more certain ones apart.
MOST_CERTAIN = 7.0


def mask_logits(roi_head: Any, features: Features, boxes: Tensor, labels: Tensor) -> Tensor:
    """Return the masks (N, K, h, w) of boxes (N, K, 4), each of its label.

    Those of a cascade are the logits of the mean of its stages' probabilities, within +-7.
    """
    logits = []
    for of_all in _of_stages(roi_head, features, rois_of(boxes)):
        answers = of_all.unflatten(0, boxes.shape[:2])
        index = labels[..., None, None, None].expand(-1, -1, 1, answers.shape[3], answers.shape[4])
        logits.append(answers[:, :, 0] if heads_of(roi_head)[-1].class_agnostic else answers.gather(2, index)[:, :, 0])
    if not isinstance(roi_head.mask_head, nn.ModuleList):
        return logits[0]
    # A small probability keeps its digits, which one minus a large one has lost.
    for_it, against_it = (torch.stack([(sign * each).sigmoid() for each in logits]).mean(dim=0) for sign in (1, -1))
    return (for_it.clamp(min=1e-6).log() - against_it.clamp(min=1e-6).log()).clamp(-MOST_CERTAIN, MOST_CERTAIN)


def _of_stages(roi_head: Any, features: Features, rois: Tensor) -> list[Tensor]:
    """Return the masks (R, C, h, w) that mmdet takes the mean of."""
    if owner_of(roi_head, '_mask_forward') == HYBRID:
        # Every stage feeds the next one, and only the last one counts.
        answers: list[Tensor] = roi_head._mask_forward(-1, features.levels, rois, semantic_feat=features.semantic,
                                                       training=False)['mask_preds']
        return answers
    stages = [[number] for number in range(len(heads_of(roi_head)))] if isinstance(roi_head.mask_head, nn.ModuleList) else [[]]
    return [roi_head._mask_forward(*stage, features.levels, rois)['mask_preds'] for stage in stages]


def heads_of(roi_head: Any) -> list[Any]:
    """Return the mask head of each stage."""
    return list(roi_head.mask_head) if isinstance(roi_head.mask_head, nn.ModuleList) else [roi_head.mask_head]


def extractors_of(roi_head: Any) -> list[Any]:
    """Return what cuts the regions of masks out, of each stage."""
    layers = roi_head.mask_roi_extractor
    return list(layers) if isinstance(layers, nn.ModuleList) else [layers]


def cells_of(roi_head: Any) -> tuple[int, int]:
    """Return height and width of a mask."""
    head = heads_of(roi_head)[-1]
    height, width = extractors_of(roi_head)[-1].roi_layers[0].output_size
    times = int(head.scale_factor) if head.upsample_method else 1
    return times * int(height), times * int(width)


def mask_doubts(roi_head: Any, features: Features, rows: tuple[Tensor, ...], tolerance: float) -> dict[str, Tensor]:
    """Return `mask_slack` and `mask_unsure` (N, K): what moving its box does to a mask.

    Args:
        rows: boxes, labels and masks.
        tolerance: by how much boxes are moved, in pixels.
    """
    boxes, labels, masks = rows
    slack = torch.zeros_like(boxes[..., 0])
    for signs in ((-1, -1, 1, 1), (1, 1, 1, 1)):
        moved = mask_logits(roi_head, features, boxes + tolerance * boxes.new_tensor(signs), labels)
        slack = torch.maximum(slack, (moved - masks).abs().amax(dim=(2, 3)))
    extractors = (*extractors_of(roi_head), *semantic_extractors(roi_head, 'mask'))
    unsure = torch.stack([sizes_in_doubt(extractor, boxes) for extractor in extractors]).any(dim=0)
    return {'mask_slack': slack, 'mask_unsure': unsure}


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
