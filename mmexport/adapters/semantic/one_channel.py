"""Decide between background and one class by a single channel, as the installed mmseg does."""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

# Keeps the logit of a threshold of 0 or 1 finite.
TINY = 1e-6


@dataclass(frozen=True)
class OneChannel:
    """Hold the rule by which a logit becomes label 1.

    mmseg 1.0 compares the logit itself with the head's threshold; since 1.1 its sigmoid is compared, and is what ``test_step`` returns
    (``BaseSegmentor.postprocess_result``).
    """

    threshold: float
    by_sigmoid: bool = True

    @classmethod
    def of(cls, model: nn.Module, head: Any) -> OneChannel | None:
        """Return the rule of `model`, found by a logit for which the two differ; None for a head of several channels."""
        if getattr(head, 'out_channels', None) != 1:
            return None
        threshold = float(head.threshold)
        # A cascade of heads has no threshold of its own, and ``test_step`` fails for it.
        if not hasattr(model, 'postprocess_result') or isinstance(model.decode_head, nn.ModuleList):
            return cls(threshold)
        logit = threshold - 1 if threshold <= 0 else threshold + 1 if threshold >= 1 else (threshold + _logit(threshold)) / 2
        sample, = model.postprocess_result(torch.full((1, 1, 2, 2), logit), None)  # type: ignore[operator]
        label = bool(sample.pred_sem_seg.data.flatten()[0])
        return cls(threshold, label == (1 / (1 + math.exp(-logit)) > threshold))

    @property
    def edge(self) -> float:
        """Return the logit above which the label is 1."""
        return _logit(self.threshold) if self.by_sigmoid else self.threshold

    @property
    def least_score(self) -> float:
        """Return the score, the sigmoid of the logit, above which the label is 1."""
        return self.threshold if self.by_sigmoid else 1 / (1 + math.exp(-self.threshold))

    def decide(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return labels int32 and scores (N, H, W) of logits (N, 1, H, W)."""
        scores = logits[:, 0].sigmoid()
        return ((scores if self.by_sigmoid else logits[:, 0]) > self.threshold).to(torch.int32), scores

    def scores_of(self, answer: Tensor) -> Tensor:
        """Return scores (N, H, W) of what ``test_step`` gives as logits (N, 1, H, W)."""
        return answer[:, 0] if self.by_sigmoid else answer[:, 0].sigmoid()


def _logit(threshold: float) -> float:
    inside = min(max(threshold, TINY), 1 - TINY)
    return math.log(inside / (1 - inside))
