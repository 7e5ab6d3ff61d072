"""Choose the proposals of an RPN, and decode what a RoI head gives for each.

A whole batch is computed at once. Every picture has as many regions; those that no proposal fills are zero, and nothing of them counts.

Sources: mmdet/models/dense_heads/rpn_head.py; mmdet/models/roi_heads: standard_roi_head.py, cascade_roi_head.py, bbox_heads/bbox_head.py.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ....errors import UnsupportedModelError
from ...specs import LOGIT_TOLERANCE
from ..boxes.candidates import Candidates, candidate_limit
from ..boxes.dense import Maps, base_head, decoded
from ..boxes.suppression import GREEDY, check_rows, check_suppression, kept

# A head with a semantic branch, whose methods take more.
HYBRID = 'HybridTaskCascadeRoIHead'
# A head that merges the detections of branches with other dilations.
BRANCHES = 'TridentRoIHead'
# The methods that are replaced here, and the classes by which they are defined.
RPN_OWNERS = ('BaseDenseHead', 'RPNHead', 'RPNHead')
ROI_METHODS = ('predict', 'predict_bbox')
ROI_HEADS = ('BaseRoIHead', 'StandardRoIHead', 'CascadeRoIHead', 'MaskScoringRoIHead', HYBRID)
HEAD_METHODS = ('predict_by_feat', '_predict_by_feat_single', 'regress_by_class')
HEADS = ('BBoxHead',)
# Of a size that decides how many cells a bin reads, relative.
CLOSE = LOGIT_TOLERANCE


class Features(NamedTuple):
    """Hold the maps that regions are cut from: one a level, and the one of a semantic branch if there is any."""

    levels: list[Tensor]
    semantic: Tensor | None = None


class Regions(NamedTuple):
    """Hold boxes (N, K, 4), and which of them there are (N, K)."""

    boxes: Tensor
    valid: Tensor


def candidates_of(head: Any, maps: Maps, sizes: Tensor) -> Candidates:
    """Return the candidates of an RPN. Their labels are the levels, because those of one level only suppress each other."""
    candidates = base_head(head, maps, sizes)
    # A level that has fewer places than `nms_pre` fills up with scores of 0.
    candidates = candidates._replace(valid=candidates.scores > 0)
    places = torch.arange(candidates.labels.shape[1], device=sizes.device)
    level = torch.div(places, candidate_limit(head.test_cfg), rounding_mode='floor')
    return candidates._replace(labels=level.expand_as(candidates.labels))


def settings_of(head: Any) -> dict[str, Any]:
    """Return the test_cfg of an RPN without a threshold of the score. mmdet's does not read it."""
    return {key: value for key, value in head.test_cfg.items() if key != 'score_thr'}


def check_proposals(head: Any) -> None:
    """Raise if the number of proposals is open.

    Raises:
        UnsupportedModelError: it is.
    """
    check_suppression(head.test_cfg, GREEDY)
    # mmdet cuts the list by this number, whatever `nms` has; -1 drops the last proposal.
    check_rows(dict(max_per_img=head.test_cfg.get('max_per_img', -1), nms={}), 'rpn')


def proposals(head: Any, maps: Maps, sizes: Tensor) -> Regions:
    """Return the regions that an RPN proposes."""
    boxes, _, _, num = kept(candidates_of(head, maps, sizes), head.test_cfg)
    return Regions(boxes, torch.arange(boxes.shape[1], device=num.device) < num[:, None])


def second_stage(roi_head: Any, features: Features, regions: Regions, sizes: Tensor) -> tuple[Candidates, Tensor, list[Tensor]]:
    """Return the candidates of a RoI head, one for each region and class; all its logits (S, N, K, C); the regions of each stage (N, K, 4).

    A cascade looks again at the boxes that the stage before has moved, and takes the mean of all logits.
    """
    stages, boxes, logits = heads_of(roi_head), regions.boxes, []
    looked_at = [boxes]
    for number, head in enumerate(stages):
        answers = _looked_at(roi_head, number, features, boxes)
        logits.append(answers['cls_score'].unflatten(0, boxes.shape[:2]))
        deltas = answers['bbox_pred'].unflatten(0, boxes.shape[:2]) if head.with_reg else None
        if deltas is not None and number < len(stages) - 1:
            boxes = decoded(head.bbox_coder, boxes, _of_best_class(head, logits[-1], deltas), sizes)
            looked_at.append(boxes)
    mean = torch.stack(logits).sum(dim=0) / len(logits) if len(logits) > 1 else logits[0]
    scores = _activated(head, mean)[..., :head.num_classes]
    # Boxes of their own for each class, or one for all.
    one = head.reg_class_agnostic or not head.with_reg
    if deltas is None:
        final = boxes.clamp(min=0).minimum(sizes.flip(1).repeat(1, 2)[:, None].to(boxes))
    else:
        deltas = deltas.reshape(boxes.shape[0], -1, head.bbox_coder.encode_size)
        final = decoded(head.bbox_coder, boxes.repeat_interleave(1 if one else head.num_classes, dim=1), deltas, sizes)
    if one:
        final = final.repeat_interleave(head.num_classes, dim=1)
    labels = torch.arange(head.num_classes, device=sizes.device).expand_as(scores)
    # A region that no proposal fills is no candidate, however wide the threshold is taken.
    scores = torch.where(regions.valid[..., None], scores, torch.full_like(scores, -1.0))
    valid = scores > float(roi_head.test_cfg['score_thr'])
    return Candidates(final, scores.flatten(1), labels.flatten(1), valid.flatten(1)), torch.stack(logits), looked_at


def heads_of(roi_head: Any) -> list[Any]:
    """Return the head of each stage."""
    return stages_of(roi_head.bbox_head)


def extractors_of(roi_head: Any) -> list[Any]:
    """Return what cuts the regions out, of each stage."""
    return stages_of(roi_head.bbox_roi_extractor)


def check_extractors(extractors: Iterable[Any]) -> None:
    """Raise if regions are cut by anything else than RoIAlign with averages.

    Raises:
        UnsupportedModelError: they are.
    """
    for extractor in extractors:
        for layer in extractor.roi_layers:
            if type(layer).__name__ != 'RoIAlign' or layer.pool_mode != 'avg':
                pooling = f' with pool_mode {layer.pool_mode!r}' if hasattr(layer, 'pool_mode') else ''
                raise UnsupportedModelError(f'{type(extractor).__name__} cuts regions by {type(layer).__name__}{pooling}, and mmexport '
                                            'knows RoIAlign with averages: use --outputs raw')


def stages_of(layers: Any) -> list[Any]:
    """Return the module of each stage; a head that is no cascade has one."""
    return list(layers) if isinstance(layers, nn.ModuleList) else [layers]


def semantic_extractors(roi_head: Any, purpose: str) -> list[Any]:
    """Return what cuts regions out of a semantic map. `purpose` is ``bbox`` or ``mask``; without a map there is none."""
    return [roi_head.semantic_roi_extractor] if has_semantic(roi_head) and purpose in roi_head.semantic_fusion else []


def has_semantic(roi_head: Any) -> bool:
    return bool(getattr(roi_head, 'with_semantic', False))


def rois_of(boxes: Tensor) -> Tensor:
    """Return boxes (N, K, 4) as mmdet's regions (N * K, 5), the number of the picture first."""
    images = torch.arange(boxes.shape[0], device=boxes.device).to(boxes)[:, None, None].expand(-1, boxes.shape[1], 1)
    return torch.cat([images, boxes], dim=2).flatten(0, 1)


def _looked_at(roi_head: Any, stage: int, features: Features, boxes: Tensor) -> Any:
    stages = [stage] if isinstance(roi_head.bbox_head, nn.ModuleList) else []
    more = {} if features.semantic is None else dict(semantic_feat=features.semantic)
    return roi_head._bbox_forward(*stages, features.levels, rois_of(boxes), **more)


def _activated(head: Any, logits: Tensor) -> Tensor:
    scores: Tensor = head.loss_cls.get_activation(logits) if head.custom_cls_channels else logits.softmax(dim=-1)
    return scores


def _of_best_class(head: Any, logits: Tensor, deltas: Tensor) -> Tensor:
    """Return the deltas (N, K, 4) of the class that a region has most of; where there are no others, all."""
    if head.reg_class_agnostic:
        return deltas
    scores = head.loss_cls.get_activation(logits) if head.custom_activation else logits
    best = scores[..., :-1].argmax(dim=-1)
    size = head.bbox_coder.encode_size
    return deltas.gather(2, best[..., None] * size + torch.arange(size, device=deltas.device))


def sizes_in_doubt(extractor: Any, boxes: Tensor) -> Tensor:
    """Return of which regions (N, K) rounding may choose another level, or another number of samples."""
    sides = boxes[..., 2:] - boxes[..., :2]
    doubt = torch.zeros_like(boxes[..., 0], dtype=torch.bool)
    # GRoIE's extractor reads every level.
    if len(extractor.roi_layers) > 1 and hasattr(extractor, 'finest_scale'):
        steps = torch.log2(sides.prod(dim=-1).clamp(min=1e-9).sqrt() / extractor.finest_scale)
        doubt = ((steps - steps.round()).abs() < CLOSE) & (steps > 0.5)
    for layer in extractor.roi_layers:
        if not layer.sampling_ratio:
            cells = sides.flip(-1) * layer.spatial_scale / torch.tensor(layer.output_size, device=boxes.device)
            # A side that ends at both borders of the picture is exact, and so is one of no length, at one border.
            off = (cells - cells.round()).abs() / cells.clamp(min=1)
            doubt = doubt | ((off < CLOSE) & (off > 0)).any(dim=-1)
    return doubt
