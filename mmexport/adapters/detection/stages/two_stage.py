"""Export box detection in two stages: proposals of an RPN, and a head that looks at each."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ....checker.rules.continuous import competing_scale
from ....errors import UnsupportedModelError
from ....registry import ADAPTERS
from ..boxes.candidates import Candidates, candidate_limit
from ..boxes.decoders import check_owners, owners
from ..boxes.evidence import close_calls, scale_of
from ..boxes.suppression import GREEDY, SOFT, check_rows, check_suppression, kept, limit_of, places_kept
from . import grid, masks
from .mask_evidence import MovedMasks, masks_where_moved, with_masks
from .points import has_points
from .regions import (
    BRANCHES,
    HEAD_METHODS,
    HEADS,
    ROI_HEADS,
    ROI_METHODS,
    RPN_OWNERS,
    Features,
    Regions,
    candidates_of,
    check_extractors,
    check_proposals,
    extractors_of,
    has_semantic,
    heads_of,
    proposals,
    second_stage,
    semantic_extractors,
    settings_of,
    sizes_in_doubt,
)
from .roi_masks import RoiMasks


@ADAPTERS.register_module()
class TwoStage(RoiMasks):
    """Give boxes of Faster and Cascade R-CNN, and the masks of those that have them.

    ``raw``: the maps of the RPN, `rpn_scores_0` and `rpn_boxes_0` and so on for each level, and those that regions are cut from,
    `features_0` and so on, (N, channels, h, w); of a semantic branch `semantic_0`.

    ``final``: as `Detection`, by the test_cfg of the RoI head;
    with masks also `masks` (N, K, h, w), logits of each row's label within its box.

    Source: mmdet/models/detectors/two_stage.py.
    """

    task = 'detection (two stages)'
    map_names = ('rpn_scores', 'rpn_boxes', 'features', 'semantic')

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        # Learned regions are no proposals of maps, see `sparse`; and what Panoptic FPN fuses is not an instance's alone.
        return (all(hasattr(model, name) for name in ('rpn_head', 'roi_head', 'extract_feat'))
                and not hasattr(model.rpn_head, 'init_proposal_features') and not hasattr(model, 'panoptic_fusion_head'))

    def check_head(self) -> None:
        rpn, roi_head = self._part('rpn_head'), self._part('roi_head')
        if owners(rpn) != RPN_OWNERS:
            raise UnsupportedModelError(f'{type(rpn).__name__} makes proposals by methods of {", ".join(owners(rpn))}, which mmexport does '
                                        'not know')
        # With one branch, TridentNet suppresses what it has suppressed before: nothing changes.
        roi_heads = ROI_HEADS if getattr(roi_head, 'test_branch_idx', -1) < 0 else (*ROI_HEADS, BRANCHES)
        roi_heads = (*roi_heads, grid.GRID) if grid.has_grid(roi_head) else roi_heads
        parts = [(roi_head, ROI_METHODS, roi_heads), *((head, HEAD_METHODS, HEADS) for head in heads_of(roi_head))]
        if self.has_masks:
            parts += [(roi_head, masks.ROI_METHODS, masks.ROI_HEADS),
                      *((head, masks.METHODS, masks.HEADS) for head in masks.heads_of(roi_head))]
        if has_points(roi_head) and float(roi_head.test_cfg.scale_factor) != int(roi_head.test_cfg.scale_factor):
            raise UnsupportedModelError(f'test_cfg.rcnn.scale_factor is {roi_head.test_cfg.scale_factor}, and mmexport knows whole '
                                        'numbers: use --outputs raw')
        if grid.has_grid(roi_head):
            parts.append((roi_head.grid_head, grid.METHODS, grid.HEADS))
        for part, methods, known in parts:
            check_owners(part, methods, known)
        # A head of points samples its masks from one map.
        of_masks = masks.extractors_of(roi_head) if self.has_masks and not has_points(roi_head) else []
        of_semantic = [extractor for purpose in ('bbox', 'mask') for extractor in semantic_extractors(roi_head, purpose)]
        check_extractors([*extractors_of(roi_head), *of_masks, *of_semantic])
        check_proposals(rpn)
        check_suppression(roi_head.test_cfg, GREEDY, SOFT)
        check_rows(roi_head.test_cfg, 'rcnn')

    @property
    def head(self) -> Any:
        return heads_of(self._part('roi_head'))[-1]

    @property
    def limit(self) -> int:
        return limit_of(self._part('roi_head').test_cfg)

    def raw(self, image: Tensor) -> tuple[Tensor, ...]:
        features = self.model.extract_feat(image)  # type: ignore[operator]
        roi_head = self._part('roi_head')
        semantic = [roi_head.semantic_head(features)[1]] if has_semantic(roi_head) else []
        groups = (*self._part('rpn_head')(features), features[:extractors_of(roi_head)[0].num_inputs], semantic)
        self.levels = [len(group) for group in groups]
        return tuple(level for group in groups for level in group)

    def kept_within(self, raw: tuple[Tensor, ...], sizes: Tensor) -> tuple[Tensor, ...]:
        maps, features = self.groups(raw)
        regions = proposals(self._part('rpn_head'), maps, sizes)
        return self._rows(features, second_stage(self._part('roi_head'), features, regions, sizes)[0])

    def _rows(self, features: Features, candidates: Candidates) -> tuple[Tensor, ...]:
        roi_head = self._part('roi_head')
        boxes, scores, labels, num = kept(candidates, roi_head.test_cfg)
        if grid.has_grid(roi_head):
            counts = torch.arange(boxes.shape[1], device=num.device) < num[:, None]
            boxes = grid.placed(roi_head, features, boxes).boxes * counts[..., None]
        if not self.has_masks:
            return boxes, scores, labels, num
        logits, quality = masks.masks_of(self._part('roi_head'), features, boxes, labels)
        scores = scores if quality is None else scores * quality
        return boxes, scores, labels, num, logits * (torch.arange(logits.shape[1], device=logits.device) < num[:, None])[..., None, None]

    def close_calls_within(self, raw: tuple[Tensor, ...], sizes: Tensor) -> dict[str, Tensor]:
        """Return which rows rounding may change; doubts about proposals, and about the samples of a bin, go on to the second stage."""
        (maps, features), rpn, roi_head = self.groups(raw), self._part('rpn_head'), self._part('roi_head')
        proposed = candidates_of(rpn, maps, sizes)
        calls = close_calls(proposed, settings_of(rpn), scale_of(maps[0], proposed, candidate_limit(rpn.test_cfg)))
        regions = proposals(rpn, maps, sizes)
        others = Regions(calls['maybe'][..., :4], calls['maybe'][..., 5] >= 0)
        may_be_added = torch.cat([torch.zeros_like(regions.valid), others.valid], dim=1)
        may_be_removed = torch.cat([calls['unsure'], torch.zeros_like(others.valid)], dim=1)
        of_eager, logits, looked_at = second_stage(roi_head, features, regions, sizes)
        candidates, scale = of_eager, competing_scale(logits, 3)
        if others.valid.shape[1]:
            of_others, other_logits, others_looked_at = second_stage(roi_head, features, others, sizes)
            candidates = Candidates(*(torch.cat(parts, dim=1) for parts in zip(of_eager, of_others, strict=True)))
            looked_at = [torch.cat(boxes, dim=1) for boxes in zip(looked_at, others_looked_at, strict=True)]
            scale = max(scale, competing_scale(other_logits, 3))
        for extractor, region in zip(extractors_of(roi_head), looked_at, strict=True):
            for each_extractor in (extractor, *semantic_extractors(roi_head, 'bbox')):
                may_be_removed = may_be_removed | sizes_in_doubt(each_extractor, region)
        each = candidates.valid.shape[1] // may_be_added.shape[1]
        doubts = close_calls(candidates, roi_head.test_cfg, scale, may_be_removed.repeat_interleave(each, dim=1),
                             may_be_added.repeat_interleave(each, dim=1), places_kept(of_eager, roi_head.test_cfg))
        if grid.has_grid(roi_head):
            doubts = grid.with_places(doubts, roi_head, features, kept(of_eager, roi_head.test_cfg))
        return with_masks(doubts, roi_head, features, kept(of_eager, roi_head.test_cfg)[:3]) if self.has_masks else doubts

    def masks_where_moved(self, raw: tuple[Tensor, ...], sizes: Tensor, rows: Sequence[Tensor]) -> MovedMasks:
        return masks_where_moved(self._part('roi_head'), self.groups(raw)[1], rows[0], rows[2])

    def groups(self, raw: tuple[Tensor, ...]) -> tuple[list[list[Tensor]], Features]:
        """Return the maps of the RPN, and those that regions are cut from."""
        maps = iter(raw)
        *of_rpn, levels, semantic = ([next(maps) for _ in range(count)] for count in self.levels)
        return of_rpn, Features(levels, semantic[0] if semantic else None)
