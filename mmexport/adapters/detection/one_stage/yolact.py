"""Export YOLACT: boxes by fast NMS, and masks that are sums of prototypes, cut at their boxes."""
from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....checker.rules.continuous import competing_scale
from ....errors import UnsupportedModelError
from ....ops.ranking import rows_at
from ....ops.sigmoid import sigmoid
from ....registry import ADAPTERS
from ...base import Adapter
from ...specs import LOGIT_TOLERANCE, STEEPEST, OutputSpec
from ..boxes import fast_nms
from ..boxes.candidates import Candidates, best_rows
from ..boxes.decoders import check_owners
from ..boxes.dense import decoded, priors_of, rows_of
from ..boxes.evidence import close_calls, score_slack
from ..detection import Detection
from ..pasting import decided, read_masks

HEAD, MASKS = 'YOLACTHead', 'YOLACTProtonet'
# The methods that are replaced here, by the attribute of the model that has them.
KNOWN = {'bbox_head': (HEAD, ('predict_by_feat', '_predict_by_feat_single', '_bbox_post_process')),
         'mask_head': (MASKS, ('predict_by_feat', '_predict_by_feat_single', 'forward', 'crop_mask_preds', 'crop_single'))}
# Cells that a mask reaches beyond its box.
PADDING = 1


class Positions(NamedTuple):
    """Hold boxes (N, P, 4), scores (N, P, C) and coefficients (N, P, D) of the best positions of all levels."""

    boxes: Tensor
    scores: Tensor
    coefficients: Tensor


@ADAPTERS.register_module()
class YOLACT(Detection):
    """Give boxes and masks of YOLACT.

    ``raw``: `scores_0`, `boxes_0`, `coefficients_0` and so on for each level, and `prototypes_0` (N, D, h, w).
    ``final``: as `Detection`, with `masks` (N, K, H, W) uint8, 1 where the probability is over ``test_cfg.mask_thr``.

    Paper: YOLACT, ICCV 2019. Source: mmdet/models/dense_heads/yolact_head.py.
    """

    task = 'detection (fast NMS with masks)'
    map_names = ('scores', 'boxes', 'coefficients', 'prototypes')

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        return hasattr(model, 'extract_feat') and hasattr(getattr(model, 'bbox_head', None), 'conv_coeff') and hasattr(
            getattr(model, 'mask_head', None), 'protonet')

    @classmethod
    def variant(cls, option: str) -> type[Adapter] | None:
        # Its masks are those of the whole picture.
        return cls if option == 'paste' else None

    def check_head(self) -> None:
        for attribute, (owner, methods) in KNOWN.items():
            check_owners(getattr(self.model, attribute), methods, (owner,))
        cfg = self.head.test_cfg
        for name in ('nms_pre', 'top_k', 'max_per_img'):
            if int(cfg.get(name, -1)) <= 0:
                raise UnsupportedModelError(f'test_cfg.{name} is no limit, and a file has as many rows for every picture: set it, or use '
                                            '--outputs raw')
        if float(cfg.get('mask_thr_binary', 0.5)) < 0:
            raise UnsupportedModelError(f'test_cfg.mask_thr_binary is {cfg.mask_thr_binary}, with which mmdet gives masks of 0 and 255: '
                                        'set it to 0.5, or use --outputs raw')

    @property
    def limit(self) -> int:
        return min(int(self.head.test_cfg.max_per_img), self.num_classes * int(self.head.test_cfg.top_k))

    @property
    def specs(self) -> tuple[OutputSpec, ...]:
        if self.outputs == 'raw':
            return super().specs
        return (*super().specs, OutputSpec('masks', 'uint8', ('batch', 'row', 'height', 'width'), 'detections'))

    def raw(self, image: Tensor) -> tuple[Tensor, ...]:
        features = self.model.extract_feat(image)  # type: ignore[operator]
        groups = (*self.head(features), [self._part('mask_head').protonet(features[0])])
        self.levels = [len(group) for group in groups]
        return tuple(level for group in groups for level in group)

    def positions(self, raw: tuple[Tensor, ...], sizes: Tensor) -> Positions:
        """Return the best positions of each level; those that a small level lacks have score 0."""
        head, maps = self.head, iter(raw)
        groups = [list(islice(maps, count)) for count in self.levels[:3]]
        found = []
        for number, priors in enumerate(priors_of(head, groups[0])):
            logits, deltas, coefficients = (rows_of(group[number], width) for group, width in
                                            zip(groups, (head.cls_out_channels, 4, head.num_protos), strict=True))
            scores = sigmoid(logits) if head.use_sigmoid_cls else logits.softmax(dim=2)
            scores, index, inside = best_rows(scores, int(head.test_cfg.nms_pre), head.cls_out_channels - head.num_classes)
            found.append(Positions(decoded(head.bbox_coder, priors[index], rows_at(deltas, index), sizes),
                                   scores * inside[..., None], rows_at(coefficients, index)))
        return Positions(*(torch.cat(parts, dim=1) for parts in zip(*found, strict=True)))

    def ranked(self, positions: Positions) -> fast_nms.Ranked:
        return fast_nms.ranked(positions.boxes, positions.scores, int(self.head.test_cfg.top_k))

    def rows(self, ranked: fast_nms.Ranked) -> tuple[Tensor, Tensor]:
        """Return the best entries (N, K) of all classes that stay, and how many they are (N,)."""
        cfg = self.head.test_cfg
        stays = (fast_nms.stays(ranked, float(cfg.iou_thr)) & (ranked.scores > float(cfg.score_thr))).flatten(1)
        entries = torch.where(stays, ranked.scores.flatten(1), torch.full_like(ranked.scores.flatten(1), -1.0)).topk(self.limit, dim=1)
        return entries.indices, stays.sum(dim=1).clamp(max=self.limit)

    @staticmethod
    def of_entries(positions: Positions, ranked: fast_nms.Ranked, entries: Tensor) -> tuple[Tensor, Tensor]:
        """Return boxes (N, K, 4) and coefficients (N, K, D) of what `rows` chose."""
        place = ranked.places.flatten(1).gather(1, entries)
        return rows_at(positions.boxes, place), rows_at(positions.coefficients, place)

    def final(self, raw: tuple[Tensor, ...], image: Tensor) -> tuple[Tensor, ...]:
        positions = self.positions(raw, self.sizes_of(image))
        ranked = self.ranked(positions)
        entries, num = self.rows(ranked)
        counts = torch.arange(self.limit, device=num.device) < num[:, None]
        boxes, coefficients = self.of_entries(positions, ranked, entries)
        whole = self.in_picture(raw[-1], coefficients, boxes, image.shape[2:])
        return (boxes * counts[..., None], ranked.scores.flatten(1).gather(1, entries) * counts,
                torch.div(entries, ranked.scores.shape[2], rounding_mode='floor') * counts, num,
                decided(whole > float(self.head.test_cfg.mask_thr), num, None))

    def in_picture(self, prototypes: Tensor, coefficients: Tensor, boxes: Tensor, size: Sequence[Any]) -> Tensor:
        """Return the probabilities (N, K, H, W) of masks within boxes (N, K, 4)."""
        masks = (coefficients @ prototypes.flatten(2)).sigmoid().unflatten(2, prototypes.shape[2:])
        for axis, (first, last) in ((3, (0, 2)), (2, (1, 3))):
            cells = torch.arange(masks.shape[axis], device=masks.device).view((1, 1, 1, -1) if axis == 3 else (1, 1, -1, 1))
            ends = boxes[..., first, None, None] / size[axis - 2] * masks.shape[axis], boxes[..., last, None, None] / size[axis - 2] * \
                masks.shape[axis]
            masks = masks * ((cells >= torch.minimum(*ends) - PADDING) & (cells < torch.maximum(*ends) + PADDING))
        return F.interpolate(masks, size=(size[0], size[1]), mode='bilinear')

    def evidence(self, raw: tuple[Tensor, ...], image: Tensor, recorded: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return which rows rounding may change, and `mask_near`: pixels at the threshold, or at an edge that the box's tolerance moves."""
        cfg, positions = self.head.test_cfg, self.positions(raw, self.sizes_of(image))
        ranked = self.ranked(positions)
        scale = max(competing_scale(part, 1) for part in raw[:self.levels[0]])
        stays = fast_nms.stays(ranked, float(cfg.iou_thr))
        doubtful = fast_nms.doubtful(ranked, float(cfg.iou_thr), score_slack(ranked.scores, scale))
        entries, num = self.rows(ranked)
        candidates = Candidates(
            ranked.boxes.flatten(1, 2), torch.where(stays | doubtful, ranked.scores, torch.full_like(ranked.scores, -1.0)).flatten(1),
            torch.arange(ranked.scores.shape[1], device=num.device)[:, None].expand_as(ranked.scores).flatten(1),
            (stays & (ranked.scores > float(cfg.score_thr))).flatten(1))
        settings = dict(nms=dict(type='nms', iou_threshold=float('inf')), max_per_img=self.limit, score_thr=float(cfg.score_thr))
        doubts = close_calls(candidates, settings, scale, (doubtful & stays).flatten(1), (doubtful & ~stays).flatten(1), (entries, num))
        boxes, coefficients = self.of_entries(positions, ranked, entries)
        reach = LOGIT_TOLERANCE * float(boxes.abs().max()) * boxes.new_tensor([-1, -1, 1, 1])
        most, least = (self.in_picture(raw[-1], coefficients, each, image.shape[2:]) for each in (boxes + reach, boxes - reach))
        threshold = float(cfg.mask_thr)
        # A logit is a sum of products, and both factors of each may be off.
        weights, prototypes = coefficients.abs(), raw[-1].abs()
        of_logits = weights.amax() * prototypes.sum(dim=1).amax() + prototypes.amax() * weights.sum(dim=2).amax()
        slack = STEEPEST * LOGIT_TOLERANCE * float(of_logits)
        # Outside of the box there is exactly nothing.
        return {**doubts, 'mask_near': (most >= threshold - slack) & (least <= threshold + slack) & (most > 0)}

    def read(self, samples: list[Any]) -> dict[str, Tensor]:
        return {**super().read(samples), 'masks': read_masks(samples, self.limit)}
