"""Export CenterNet: the local maxima of a map of scores are the centres of boxes."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....errors import UnsupportedModelError
from ....registry import ADAPTERS
from ...base import Adapter
from ..boxes.candidates import Candidates
from ..boxes.decoders import owner_of
from ..boxes.dense import rows_of
from ..boxes.evidence import close_calls, score_slack
from ..detection import Detection

HEAD = 'CenterNetHead'
# The methods that are replaced here, all of `HEAD`.
METHODS = ('predict_by_feat', '_predict_by_feat_single', '_decode_heatmap')
# Places after the cut that are looked at.
BEYOND = 50


@ADAPTERS.register_module()
class CenterDetection(Detection):
    """Give the boxes of CenterNet.

    ``raw``: `heatmap_0` (N, C, h, w), probabilities, `sizes_0` and `offsets_0` (N, 2, h, w). ``final``: as `Detection`; every picture has
    ``test_cfg.topk`` rows. Upstream takes another picture's border away, which is zero here: the file gives boxes in its own input.

    Source: mmdet/models/dense_heads/centernet_head.py.
    """

    task = 'detection (centers)'
    map_names = ('heatmap', 'sizes', 'offsets')

    @classmethod
    def variant(cls, option: str) -> type[Adapter] | None:
        return None

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        head = getattr(model, 'bbox_head', None)
        return hasattr(model, 'extract_feat') and all(hasattr(head, name) for name in (*METHODS, 'heatmap_head'))

    def check_head(self) -> None:
        for name in METHODS:
            if (owner := owner_of(self.head, name)) != HEAD:
                raise UnsupportedModelError(f'{type(self.head).__name__} decides by a {name} of {owner}, which mmexport does not know: use '
                                            '--outputs raw')

    @property
    def limit(self) -> int:
        return int(self.head.test_cfg['topk'])

    def unscaled(self, size: tuple[int, int]) -> dict[str, Any]:
        # The test pipeline centres a picture in its padding, and `border` says where it begins and ends.
        return dict(super().unscaled(size), border=(0, size[0], 0, size[1]))

    def final(self, raw: tuple[Tensor, ...], image: Tensor) -> tuple[Tensor, ...]:
        candidates = self._best(self._peaks(raw[0]), raw, image, self.limit)
        return candidates.boxes, candidates.scores, candidates.labels, (candidates.labels[:, 0] * 0) + self.limit

    def _peaks(self, heat: Tensor) -> Tensor:
        """Return the scores of the local maxima; the others are zero."""
        return torch.where(self._highest(heat) == heat, heat, torch.zeros_like(heat))

    def _highest(self, heat: Tensor) -> Tensor:
        """Return the highest score around each position."""
        kernel = int(self.head.test_cfg['local_maximum_kernel'])
        return F.max_pool2d(heat, kernel, stride=1, padding=(kernel - 1) // 2)

    def _best(self, scores: Tensor, raw: tuple[Tensor, ...], image: Tensor, count: int) -> Candidates:
        """Return the boxes of the best `count` of scores (N, C, h, w)."""
        height, width = scores.shape[2:]
        values, places = scores.flatten(1).topk(count, dim=1)
        labels = torch.div(places, height * width, rounding_mode='floor')
        # ``%`` with a size that is open does not convert to ONNX (torch 2.13.0).
        position = places - labels * (height * width)
        row = torch.div(position, width, rounding_mode='floor')
        size, offset = (rows_of(part, 2).gather(1, position[..., None].expand(-1, -1, 2)) for part in raw[1:3])
        centre = torch.stack([position - row * width, row], dim=2) + offset
        scale = self.sizes_of(image) / torch.stack([scores.new_zeros(scores.shape[0]) + side for side in (height, width)], dim=1)
        boxes = torch.cat([centre - size / 2, centre + size / 2], dim=2) * scale.flip(1).repeat(1, 2)[:, None]
        return Candidates(boxes, values, labels, torch.ones_like(values, dtype=torch.bool))

    def evidence(self, raw: tuple[Tensor, ...], image: Tensor, recorded: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return which rows rounding may change: maxima that nearly tie with a neighbour, and those at the cut."""
        heat = raw[0]
        slack, highest = score_slack(heat, 1.0), self._highest(heat)
        kernel = int(self.head.test_cfg['local_maximum_kernel'])
        around = F.unfold(F.pad(heat.flatten(0, 1)[:, None], [(kernel - 1) // 2] * 4, value=-1.0), kernel)
        around[:, kernel * kernel // 2] = -1.0
        neighbours = around.amax(dim=1).view_as(heat)
        doubtful = (heat - neighbours).abs() <= 2 * slack
        present = torch.where((highest == heat) | doubtful, heat, torch.zeros_like(heat))
        count = min(self.limit + BEYOND + int(doubtful.flatten(1).sum(dim=1).amax()), present[0].numel())
        candidates = self._best(present, raw, image, count)
        places = present.flatten(1).topk(count, dim=1).indices
        unsure, peaks = doubtful.flatten(1).gather(1, places), (highest == heat).flatten(1).gather(1, places)
        # Nothing is suppressed.
        cfg = dict(nms=dict(type='nms', iou_threshold=float('inf')), max_per_img=self.limit, score_thr=-1.0)
        # The rows in the order of `final`, which of equal scores is any.
        rows = self._peaks(heat).flatten(1).topk(self.limit, dim=1).indices
        index = (places[:, None] == rows[..., None]).to(torch.int64).argmax(dim=2)
        return close_calls(candidates._replace(valid=candidates.scores > 0), cfg, 1.0, unsure & peaks, unsure & ~peaks,
                           (index, torch.full_like(index[:, 0], self.limit)))
