"""Export CenterNet: the local maxima of a map of scores are the centres of boxes."""
from __future__ import annotations

import torch
from torch import Tensor

from ....ops.ranking import rows_at
from ....registry import ADAPTERS
from ..boxes.candidates import Candidates
from ..boxes.dense import rows_of
from ..boxes.evidence import close_calls, score_slack
from .heatmaps import HeatmapDetection

# Places after the cut that are looked at.
BEYOND = 50


@ADAPTERS.register_module()
class CenterDetection(HeatmapDetection):
    """Give the boxes of CenterNet.

    ``raw``: `heatmap_0` (N, C, h, w), probabilities, `sizes_0` and `offsets_0` (N, 2, h, w). ``final``: as `Detection`; every picture has
    ``test_cfg.topk`` rows. Upstream takes another picture's border away, which is zero here: the file gives boxes in its own input.

    Source: mmdet/models/dense_heads/centernet_head.py.
    """

    task = 'detection (centers)'
    map_names = ('heatmap', 'sizes', 'offsets')
    known = 'CenterNetHead'
    methods = ('predict_by_feat', '_predict_by_feat_single', '_decode_heatmap')
    attributes = ('heatmap_head',)

    @property
    def limit(self) -> int:
        return int(self.head.test_cfg['topk'])

    def final(self, raw: tuple[Tensor, ...], image: Tensor) -> tuple[Tensor, ...]:
        candidates = self._best(self.peaks(raw[0]), raw, image, self.limit)
        return candidates.boxes, candidates.scores, candidates.labels, (candidates.labels[:, 0] * 0) + self.limit

    def _best(self, scores: Tensor, raw: tuple[Tensor, ...], image: Tensor, count: int) -> Candidates:
        """Return the boxes of the best `count` of scores (N, C, h, w)."""
        values, places = scores.flatten(1).topk(count, dim=1)
        position = self.position_of(places, *scores.shape[2:])
        size, offset = (rows_at(rows_of(part, 2), position.place) for part in raw[1:3])
        centre = torch.stack([position.column, position.row], dim=2) + offset
        boxes = torch.cat([centre - size / 2, centre + size / 2], dim=2) * self.scale_of(scores, self.sizes_of(image)).repeat(1, 2)[:, None]
        return Candidates(boxes, values, position.labels, torch.ones_like(values, dtype=torch.bool))

    def evidence(self, raw: tuple[Tensor, ...], image: Tensor, recorded: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return which rows rounding may change: maxima that nearly tie with a neighbour, and those at the cut."""
        heat = raw[0]
        slack, highest = score_slack(heat, 1.0), self.highest(heat)
        doubtful = self.nearly_tied(heat, slack)
        present = torch.where((highest == heat) | doubtful, heat, torch.zeros_like(heat))
        count = min(self.limit + BEYOND + int(doubtful.flatten(1).sum(dim=1).amax()), present[0].numel())
        candidates = self._best(present, raw, image, count)
        places = present.flatten(1).topk(count, dim=1).indices
        unsure, peaks = doubtful.flatten(1).gather(1, places), (highest == heat).flatten(1).gather(1, places)
        # Nothing is suppressed.
        cfg = dict(nms=dict(type='nms', iou_threshold=float('inf')), max_per_img=self.limit, score_thr=-1.0)
        # The rows in the order of `final`, which of equal scores is any.
        rows = self.peaks(heat).flatten(1).topk(self.limit, dim=1).indices
        index = (places[:, None] == rows[..., None]).to(torch.int64).argmax(dim=2)
        return close_calls(candidates._replace(valid=candidates.scores > 0), cfg, 1.0, unsure & peaks, unsure & ~peaks,
                           (index, torch.full_like(index[:, 0], self.limit)))
