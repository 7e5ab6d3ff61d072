"""Export CornerNet: boxes are pairs of corners, local maxima of two maps of scores, that have nearly the same tag."""
from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....ops.ranking import rows_at
from ....ops.sigmoid import sigmoid
from ....registry import ADAPTERS
from ..boxes.candidates import Candidates
from ..boxes.dense import rows_of
from ..boxes.suppression import GREEDY, SOFT, check_suppression, places_kept, rows_kept
from .corner_evidence import doubts_of_pairs
from .heatmaps import HeatmapDetection

# Pairs that are suppressed among: upstream's default.
PAIRS = 1000


class Corners(NamedTuple):
    """Hold corners of one kind."""

    scores: Tensor
    """(N, k), the best first."""
    cells: Tensor
    """(N, k), of all classes."""
    labels: Tensor
    places: Tensor
    """(N, k, 2), x and y in pixels of the input."""
    tags: Tensor


class Pairs(NamedTuple):
    """Hold pairs of corners."""

    boxes: Tensor
    """(N, M, 4)"""
    scores: Tensor
    labels: Tensor
    fits: Tensor
    """(N, M), whether both are of one class, lie as corners of a box, and have tags that are near."""
    certain: Tensor
    """(N, M), whether rounding cannot change that."""
    codes: Tensor
    """(N, M), both cells."""


@ADAPTERS.register_module()
class CornerDetection(HeatmapDetection):
    """Give the boxes of CornerNet.

    ``raw``, of the head's last level: `top_left_0` and `bottom_right_0` (N, C, h, w), logits, `top_left_tags_0` and `bottom_right_tags_0`
    (N, 1, h, w), `top_left_offsets_0` and `bottom_right_offsets_0` (N, 2, h, w). ``final``: as `Detection`. Upstream takes the border of
    its padding away, which is zero here: the file gives boxes in its own input.

    Paper: CornerNet, arXiv:1808.01244. Source: mmdet/models/dense_heads/corner_head.py.
    """

    task = 'detection (corners)'
    map_names = ('top_left', 'bottom_right', 'top_left_tags', 'bottom_right_tags', 'top_left_offsets', 'bottom_right_offsets')
    known = 'CornerHead'
    methods = ('predict_by_feat', '_predict_by_feat_single', '_decode_heatmap', '_bboxes_nms')
    attributes = ('tl_heat', 'tl_emb')

    def check_head(self) -> None:
        super().check_head()
        check_suppression(self.settings, GREEDY, SOFT)

    @property
    def settings(self) -> dict[str, Any]:
        """Return the test_cfg as suppression reads it.

        `nms` has an older name, too; the head reads no threshold of scores.
        """
        cfg = dict(self.head.test_cfg)
        return {**cfg, 'nms': cfg.get('nms', cfg.get('nms_cfg')), 'score_thr': -1.0, 'min_bbox_size': -1}

    @property
    def count(self) -> int:
        """Return how many pairs are candidates."""
        return min(PAIRS, int(self.head.test_cfg['corner_topk']) ** 2)

    def raw(self, image: Tensor) -> tuple[Tensor, ...]:
        # Levels before are for training.
        maps = [group[-1] for group in self.head(self.model.extract_feat(image))]  # type: ignore[operator]
        self.levels = [1] * len(maps)
        return (*maps,)

    def kept_within(self, raw: tuple[Tensor, ...], sizes: Tensor) -> tuple[Tensor, ...]:
        candidates = self._candidates(raw, sizes)
        return rows_kept(candidates, places_kept(candidates, self.settings))

    def _candidates(self, raw: tuple[Tensor, ...], sizes: Tensor) -> Candidates:
        return self.eager(raw, sizes)[0]

    def eager(self, raw: tuple[Tensor, ...], sizes: Tensor) -> tuple[Candidates, Tensor]:
        """Return the candidates of suppression, and the codes of their pairs."""
        count = int(self.head.test_cfg['corner_topk'])
        first, second = (self.corners(self.peaks(sigmoid(raw[kind])), raw[2 + kind], raw[4 + kind], sizes, count) for kind in (0, 1))
        pairs = self.pairs(first, second, 0.0, 0.0)
        scores, index = torch.where(pairs.fits, pairs.scores, torch.full_like(pairs.scores, -1.0)).topk(self.count, dim=1)
        return Candidates(rows_at(pairs.boxes, index), scores, pairs.labels.gather(1, index), scores > -0.1), pairs.codes.gather(1, index)

    def close_calls_within(self, raw: tuple[Tensor, ...], sizes: Tensor) -> dict[str, Tensor]:
        return doubts_of_pairs(self, raw, sizes)

    def corners(self, heat: Tensor, tags: Tensor, offsets: Tensor, sizes: Tensor, count: int) -> Corners:
        """Return the best `count` corners of a map of scores (N, C, h, w)."""
        scores, cells = heat.flatten(1).topk(count, dim=1)
        position = self.position_of(cells, *heat.shape[2:])
        offset, tag = (rows_at(rows_of(part, channels), position.place) for part, channels in ((offsets, 2), (tags, 1)))
        places = (torch.stack([position.column, position.row], dim=2) + offset) * self.scale_of(heat, sizes)[:, None]
        return Corners(scores, cells, position.labels, places.clamp(min=0), tag[..., 0])

    def pairs(self, first: Corners, second: Corners, near: float, close: float) -> Pairs:
        """Return every pair of a corner of `first` and one of `second`.

        Args:
            near: by how much rounding may move a difference of places, and `close` one of tags.
        """
        sides = second.places[:, None] - first.places[:, :, None]
        apart = (first.tags[:, :, None] - second.tags[:, None]).abs() - float(self.head.test_cfg['distance_threshold'])
        same = first.labels[:, :, None] == second.labels[:, None]
        fits = same & (sides > 0).all(dim=3) & ~(apart > 0)
        certain = ~same | (sides < -near).any(dim=3) | (apart > close) | ((sides > near).all(dim=3) & (apart < -close))
        boxes = torch.cat([first.places[:, :, None].expand_as(sides), second.places[:, None].expand_as(sides)], dim=3)
        scores = (first.scores[:, :, None] + second.scores[:, None]) / 2
        # Fewer than 2^31 cells each.
        codes = first.cells[:, :, None] * 2 ** 31 + second.cells[:, None]
        return Pairs(boxes.flatten(1, 2), scores.flatten(1), first.labels[:, :, None].expand_as(same).flatten(1), fits.flatten(1),
                     certain.flatten(1), codes.flatten(1))
