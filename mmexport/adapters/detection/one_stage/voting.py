"""Export PAA: all classes of the best positions are candidates, and each box that stays becomes a mean of the boxes around it."""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ....checker.rules.continuous import competing_scale
from ....errors import UnsupportedModelError
from ....ops.nms.forms import pairwise
from ....ops.ranking import rows_at
from ....ops.sigmoid import sigmoid
from ....registry import ADAPTERS
from ...specs import LOGIT_TOLERANCE
from ..boxes.candidates import Candidates, best_positions, candidate_limit
from ..boxes.decoders import owner_of, owners
from ..boxes.dense import decoded, priors_of, rows_of
from ..boxes.evidence import close_calls, score_slack
from ..boxes.suppression import GREEDY, check_suppression, kept, places_kept, rows_kept
from ..detection import Detection, check_limit

HEAD = 'PAAHead'
# Boxes that overlap less do not vote. The weight of a vote falls by exp(-(1 - IoU)^2 / VARIANCE).
LEAST_OVERLAP, VARIANCE = 0.01, 0.025


@ADAPTERS.register_module()
class VotingDetection(Detection):
    """Give the boxes of PAA.

    A box without area overlaps nothing, itself included: mmdet 3.3.0 divides zero by zero there and returns NaN, a file returns zeros.

    Paper: Probabilistic Anchor Assignment, ECCV 2020. Source: mmdet/models/dense_heads/paa_head.py.
    """

    task = 'detection (voting)'

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        return super().matches(model) and hasattr(model.bbox_head, 'score_voting')

    def check_head(self) -> None:
        classes = (*owners(self.head), owner_of(self.head, 'score_voting'))
        if any(name != HEAD for name in classes):
            raise UnsupportedModelError(f'{type(self.head).__name__} decodes by methods of {", ".join(classes)}, and mmexport knows those '
                                        f'of {HEAD} alone: use --outputs raw')
        check_suppression(self.head.test_cfg, GREEDY)
        check_limit(self.head)

    def kept_within(self, raw: tuple[Tensor, ...], sizes: Tensor) -> tuple[Tensor, ...]:
        boxes, scores = self._positions(raw, sizes)
        rows, of_rows, labels, num = kept(self._all_pairs(boxes, scores), self.settings)
        if not self.head.with_score_voting:
            return rows, of_rows, labels, num
        counts = torch.arange(rows.shape[1], device=rows.device) < num[:, None]
        voted = _voted(rows, labels, boxes, scores, float(self.head.test_cfg['score_thr']))
        return voted * counts[..., None], of_rows, labels, num

    def close_calls_within(self, raw: tuple[Tensor, ...], sizes: Tensor) -> dict[str, Tensor]:
        """Return which rows rounding may change. A box is unsure too if votes near the threshold of the score move it."""
        boxes, scores = self._positions(raw, sizes)
        scale = max(competing_scale(part, 1) for part in raw[:self.levels[0]])
        candidates = self._all_pairs(boxes, scores)
        places = places_kept(candidates, self.settings)
        doubts = close_calls(candidates, self.settings, scale, expected=places)
        if not self.head.with_score_voting:
            return doubts
        rows, _, labels, _ = rows_kept(candidates, places)
        threshold, slack = float(self.head.test_cfg['score_thr']), float(score_slack(scores, scale).max())
        most, fewest = (_voted(rows, labels, boxes, scores, threshold + sign * slack) for sign in (-1, 1))
        moved = (most - fewest).abs().amax(dim=2) > LOGIT_TOLERANCE * boxes.abs().max()
        maybe = doubts['maybe'].clone()
        maybe[..., :4] = _voted(maybe[..., :4], maybe[..., 5].clamp(min=0).long(), boxes, scores, threshold)
        return {**doubts, 'unsure': doubts['unsure'] | moved, 'maybe': maybe}

    def read(self, samples: list[Any]) -> dict[str, Tensor]:
        outputs = super().read(samples)
        return {**outputs, 'boxes': outputs['boxes'].nan_to_num(nan=0.0)}

    def _positions(self, raw: tuple[Tensor, ...], sizes: Tensor) -> tuple[Tensor, Tensor]:
        """Return boxes (N, P, 4) and scores (N, P, C) of the best positions of each level; those that a small level lacks have score 0."""
        head, count, levels = self.head, candidate_limit(self.head.test_cfg), self.levels[0]
        maps = [raw[first:first + levels] for first in range(0, 3 * levels, levels)]
        boxes, scores = [], []
        for number, priors in enumerate(priors_of(head, maps[0])):
            logits, deltas, factors = (rows_of(group[number], width)
                                       for group, width in zip(maps, (head.cls_out_channels, 4, 1), strict=True))
            joint = (sigmoid(logits) * sigmoid(factors)).sqrt()
            index, inside = best_positions(joint, count)
            boxes.append(decoded(head.bbox_coder, priors[index], rows_at(deltas, index), sizes))
            scores.append(rows_at(joint, index) * inside[..., None])
        return torch.cat(boxes, dim=1), torch.cat(scores, dim=1)

    def _all_pairs(self, boxes: Tensor, scores: Tensor) -> Candidates:
        """Return a candidate for each position and class."""
        classes = scores.shape[2]
        labels = torch.arange(classes, device=scores.device).expand_as(scores)
        every = boxes[:, :, None].expand(-1, -1, classes, -1).flatten(1, 2)
        return Candidates(every, scores.flatten(1), labels.flatten(1), scores.flatten(1) > float(self.head.test_cfg['score_thr']))


def _voted(rows: Tensor, labels: Tensor, boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Return the means (N, K, 4) of boxes (N, P, 4) around each of `rows` (N, K, 4), weighted by overlap and score for its label.

    Args:
        scores: (N, P, C); those up to `threshold` do not vote.
    """
    overlap = pairwise(rows, boxes, rows.new_zeros(()))
    of_label = scores.transpose(1, 2).gather(1, labels[..., None].expand(-1, -1, scores.shape[1]))
    votes = (overlap > LEAST_OVERLAP) & (of_label > threshold)
    weights = (-(1 - overlap) ** 2 / VARIANCE).exp() * of_label * votes
    return weights @ boxes / weights.sum(dim=2, keepdim=True).clamp(min=1e-12)
