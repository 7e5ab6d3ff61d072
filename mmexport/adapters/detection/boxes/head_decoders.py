"""Convert the maps of dense heads that decode otherwise than `BaseDenseHead`.

Sources: mmdet/models/dense_heads/gfl_head.py, fovea_head.py, reppoints_head.py, tood_head.py, yolo_head.py and yolox_head.py.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ....ops.ranking import rows_at
from ....ops.sigmoid import sigmoid
from .candidates import Candidates, best_pairs, candidate_limit, joined
from .dense import Maps, by_level, clipped, decoded, priors_of, rows_of


def generalized_focal(head: Any, maps: Maps, sizes: Tensor) -> Candidates:
    """Convert the maps of GFL's heads, whose distances are means of distributions."""
    def boxes(level: int, priors: Tensor, deltas: Tensor) -> Tensor:
        distances = head.integral(deltas.flatten(0, 1)) * head.prior_generator.strides[level][0]
        return decoded(head.bbox_coder, head.anchor_center(priors), distances.view(*deltas.shape[:2], 4), sizes)

    return by_level(head, maps, 4 * (head.reg_max + 1), boxes)


def fovea(head: Any, maps: Maps, sizes: Tensor) -> Candidates:
    """Convert the maps of FoveaBox: distances in units of the level's length; the last pixel is the border."""
    def boxes(level: int, centers: Tensor, deltas: Tensor) -> Tensor:
        distances = deltas.exp() * head.base_edge_list[level]
        return clipped(torch.cat([centers - distances[..., :2], centers + distances[..., 2:]], dim=2), sizes - 1)

    return by_level(head, maps, 4, boxes)


def reppoints(head: Any, maps: Maps, sizes: Tensor) -> Candidates:
    """Convert the maps of RepPoints: corners from the centre, in units of the stride."""
    def boxes(level: int, points: Tensor, deltas: Tensor) -> Tensor:
        return clipped(deltas * head.point_strides[level] + points[..., :2].repeat(1, 1, 2), sizes)

    return by_level(head, maps, 4, boxes)


def task_aligned(head: Any, maps: Maps, sizes: Tensor) -> Candidates:
    """Convert the maps of TOOD: probabilities, and corners in units of the stride, which are not clipped."""
    levels = []
    for scores, boxes, stride in zip(*maps, head.prior_generator.strides, strict=True):
        values, index, labels = best_pairs(rows_of(scores, head.cls_out_channels), candidate_limit(head.test_cfg))
        valid = values > head.test_cfg['score_thr']
        scores = torch.where(valid, values, torch.zeros_like(values))
        levels.append(Candidates(rows_at(rows_of(boxes, 4), index) * stride[0], scores, labels, valid))
    return joined(levels)


def yolov3(head: Any, maps: Maps, sizes: Tensor) -> Candidates:
    """Convert the maps of YOLOv3: one for box, objectness and classes; positions without an object have no candidates."""
    predictions, cfg = maps[0], head.test_cfg
    rows = torch.cat([rows_of(part, head.num_attrib) for part in predictions], dim=1)
    priors = priors_of(head, predictions)
    strides = torch.cat([torch.full_like(part[:, :1], float(stride)) for part, stride in zip(priors, head.featmap_strides, strict=True)])
    deltas = torch.cat([rows[..., :2].sigmoid(), rows[..., 2:4]], dim=2)
    boxes, objects, classes = head.bbox_coder.decode(torch.cat(priors), deltas, strides), sigmoid(rows[..., 4]), sigmoid(rows[..., 5:])
    if float(cfg.get('conf_thr', -1)) > 0:
        classes = torch.where((objects >= cfg['conf_thr'])[..., None], classes, torch.full_like(classes, float('-inf')))
    scores, index, labels = best_pairs(classes, candidate_limit(cfg))
    valid = scores > cfg.get('score_thr', 0)
    scores = torch.where(valid, scores, torch.zeros_like(scores)) * objects.gather(1, index)
    return Candidates(rows_at(boxes, index), scores, labels, valid)


def yolox(head: Any, maps: Maps, sizes: Tensor) -> Candidates:
    """Convert the maps of YOLOX: each position has one class, and boxes are not clipped."""
    cls_maps, box_maps, object_maps = maps
    priors = head.prior_generator.grid_priors([scores.shape[2:] for scores in cls_maps], dtype=cls_maps[0].dtype,
                                              device=cls_maps[0].device, with_stride=True)
    scores, labels = sigmoid(torch.cat([rows_of(part, head.cls_out_channels) for part in cls_maps], dim=1)).max(dim=2)
    factors = sigmoid(torch.cat([rows_of(part, 1) for part in object_maps], dim=1)[..., 0])
    boxes = head._bbox_decode(torch.cat(priors), torch.cat([rows_of(part, 4) for part in box_maps], dim=1))
    return Candidates(boxes, scores * factors, labels, factors * scores >= head.test_cfg.score_thr)
