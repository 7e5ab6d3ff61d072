"""Export an RPN that is a model of its own: boxes that may hold an object, without a class."""
from __future__ import annotations

from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from ....errors import UnsupportedModelError
from ....registry import ADAPTERS
from ..boxes.candidates import candidate_limit
from ..boxes.decoders import owners
from ..boxes.evidence import close_calls, scale_of
from ..detection import Detection
from .regions import RPN_OWNERS, candidates_of, check_proposals, settings_of


@ADAPTERS.register_module()
class RegionProposals(Detection):
    """Give the proposals of an RPN.

    Boxes suppress those of their own level only; as in mmdet the label of each is 0.

    Source: mmdet/models/dense_heads/rpn_head.py.
    """

    task = 'detection (proposals)'

    @classmethod
    def matches(cls, model: nn.Module) -> bool:
        return super().matches(model) and hasattr(model.bbox_head, 'rpn_cls')

    def check_head(self) -> None:
        if owners(self.head) != RPN_OWNERS:
            raise UnsupportedModelError(f'{type(self.head).__name__} makes proposals by methods of {", ".join(owners(self.head))}, which '
                                        'mmexport does not know: use --outputs raw')
        check_proposals(self.head)

    def _candidates(self, raw: tuple[Tensor, ...], sizes: Tensor) -> Any:
        maps = iter(raw)
        return candidates_of(self.head, [list(islice(maps, count)) for count in self.levels], sizes)

    def kept_within(self, raw: tuple[Tensor, ...], sizes: Tensor) -> tuple[Tensor, ...]:
        boxes, scores, levels, num = super().kept_within(raw, sizes)
        return boxes, scores, torch.zeros_like(levels), num

    def close_calls_within(self, raw: tuple[Tensor, ...], sizes: Tensor) -> dict[str, Tensor]:
        candidates, settings = self._candidates(raw, sizes), settings_of(self.head)
        calls = close_calls(candidates, settings, scale_of(raw[:self.levels[0]], candidates, candidate_limit(settings)))
        # A label of -1 fills up.
        maybe = torch.cat([calls['maybe'][..., :5], calls['maybe'][..., 5:].clamp(max=0)], dim=2)
        return {**calls, 'maybe': maybe}
