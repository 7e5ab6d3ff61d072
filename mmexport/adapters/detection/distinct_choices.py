"""Record which queries a DDQ chooses, before its decoder and in each layer, or choose them."""
from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from ...ops import distinct as batched
from ...utils.override import override
from .selection import PLACE_SCORES, PLACES

DISTINCT = 'distinct'
UPSTREAM = ('mmdet.models.detectors.ddq_detr', 'mmdet.models.layers.transformer.ddq_detr_layers')


@contextmanager
def distinct_choices(model: Any, batch: Any, followed: Mapping[str, Tensor]) -> Iterator[Choices]:
    """Yield the choices of one run, of upstream's code or of the patched one.

    Args:
        batch: how many pictures there are.
        followed: `places` and `distinct` that are taken instead of the model's own; none if empty.
    """
    choices = Choices(model.num_queries, batch, followed)
    with ExitStack() as stack:
        for name in UPSTREAM:
            module = sys.modules[name]
            stack.enter_context(override(module, 'batched_nms', choices.of_one(vars(module)['batched_nms'])))
        stack.enter_context(override(batched, 'distinct', choices.of_all(batched.distinct)))
        yield choices


class Choices:
    """Hold what was chosen, and by which scores and boxes.

    The first choice is among the places of the picture, each later one among the queries that the layer before left; upstream lets all of
    them take part again where the first query is left.
    """

    def __init__(self, limit: int, batch: Any, followed: Mapping[str, Tensor]) -> None:
        self.limit, self.batch, self.followed = limit, batch, followed
        self.kept: list[Tensor] = []
        self.scores: list[Tensor] = []
        self.boxes: list[Tensor] = []
        self._singles: list[tuple[Tensor, Tensor, Tensor]] = []

    def of_all(self, original: Any) -> Any:
        """Return a recording `mmexport.ops.distinct.distinct`."""
        def distinct(boxes: Tensor, scores: Tensor, candidates: Tensor, cfg: Any, limit: int) -> tuple[Tensor, Tensor]:
            if self.followed:
                chosen = self._followed().to(scores.device)
                index = chosen.clamp(min=0) if not self.kept else chosen.to(torch.uint8).argsort(dim=1, descending=True, stable=True)
                count = (chosen >= 0 if not self.kept else chosen > 0).sum(dim=1)
            else:
                index, count = original(boxes, scores, candidates, cfg, limit)
            self._record(batched.corners_of(boxes), torch.where(candidates, scores, torch.full_like(scores, -1.0)), index, count)
            return index, count
        return distinct

    def of_one(self, original: Any) -> Any:
        """Return a recording ``batched_nms``, which upstream calls for each picture."""
        def batched_nms(boxes: Tensor, scores: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
            image, size = len(self._singles), self.limit if self.kept else len(scores)
            candidates = self._candidates(image, size, scores.device)
            if not self.followed:
                kept = original(boxes, scores, *args)[1]
            elif self.kept:
                kept = self._followed()[image].to(scores.device)[candidates].nonzero()[:, 0]
            else:
                places = self._followed()[image].to(scores.device)
                kept = places[places >= 0]
            # Boxes that take no part are nowhere.
            all_boxes, all_scores = boxes.new_zeros(size, 4), scores.new_full((size,), -1.0)
            all_boxes[candidates], all_scores[candidates] = boxes, scores
            self._singles.append((all_boxes, all_scores, candidates[kept]))
            if len(self._singles) == int(self.batch):
                self._record_singles()
            return boxes[kept], kept
        return batched_nms

    def _followed(self) -> Tensor:
        """Return the choice (N, Q) that is to be made next."""
        return self.followed[DISTINCT][:, len(self.kept) - 1] if self.kept else self.followed[PLACES]

    def _candidates(self, image: int, size: int, device: torch.device) -> Tensor:
        if len(self.kept) < 2 or bool(self.kept[-1][image, 0] > 0):
            return torch.arange(size, device=device)
        return self.kept[-1][image].nonzero()[:, 0]

    def _record_singles(self) -> None:
        singles, self._singles = self._singles, []
        index = torch.stack([torch.cat([kept, kept.new_zeros(self.limit)])[:self.limit] for _, _, kept in singles])
        count = torch.tensor([min(len(kept), self.limit) for _, _, kept in singles], device=index.device)
        self._record(torch.stack([boxes for boxes, _, _ in singles]), torch.stack([scores for _, scores, _ in singles]), index, count)

    def _record(self, boxes: Tensor, scores: Tensor, index: Tensor, count: Tensor) -> None:
        if self.kept:
            kept = batched.marked(index, count, self.limit).to(torch.int64)
        else:
            kept = torch.where(torch.arange(self.limit, device=index.device) < count[:, None], index, torch.full_like(index, -1))
        self.kept.append(kept)
        self.scores.append(scores)
        self.boxes.append(boxes)

    def outputs(self) -> tuple[Tensor, Tensor]:
        """Return `places` (N, Q) and `distinct` (N, L - 1, Q). The first are -1 where fewer are distinct, the second 1 or 0."""
        return self.kept[0], torch.stack(self.kept[1:], dim=1)

    def evidence(self) -> dict[str, Tensor]:
        """Return what the choices were made by; scores are -1 of queries that took no part."""
        return {PLACE_SCORES: self.scores[0], 'place_boxes': self.boxes[0], 'query_scores': torch.stack(self.scores[1:], dim=1),
                'query_boxes': torch.stack(self.boxes[1:], dim=1)}
