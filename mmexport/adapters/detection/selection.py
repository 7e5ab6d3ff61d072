"""Record which places of a picture become the queries of a two-stage decoder, or choose them."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ...utils.override import override

PLACES, PLACE_SCORES = 'places', 'place_scores'
# The classes whose ``pre_decoder`` takes the places of the best scores by one call of ``torch.topk``.
CLASSES = ('DINO', 'DeformableDETR')


def selects_places(model: nn.Module) -> bool:
    """Return whether the queries of `model` are places that it chooses in each picture."""
    owner = next((cls.__name__ for cls in type(model).__mro__ if 'pre_decoder' in vars(cls)), None)
    return owner in CLASSES and bool(getattr(model, 'as_two_stage', False))


@contextmanager
def selection(model: Any, places: Tensor | None = None) -> Iterator[dict[str, Tensor]]:
    """Yield what ``pre_decoder`` chooses by, `place_scores` (N, P), and `places` (N, Q), the best first; {} if it chooses none.

    In DINO each rank has a query embedding of its own, so that two places that change ranks change all rows a little. Of 22,000 places at
    800 x 1344 some of the best 900 always have scores that are equal to rounding.

    Args:
        places: are taken instead of those of the best scores.
    """
    chosen: dict[str, Tensor] = {}
    if not selects_places(model):
        yield chosen
        return
    original, pre_decoder = torch.topk, model.pre_decoder

    def topk(scores: Tensor, k: int, **options: Any) -> tuple[Tensor, Tensor]:
        best, best_places = original(scores, k, **options)
        if places is not None:
            best_places = places.to(scores.device)
            best = scores.gather(1, best_places)
        chosen.update({PLACES: best_places, PLACE_SCORES: scores})
        return best, best_places

    def choose(*args: Any, **kwargs: Any) -> Any:
        with override(torch, 'topk', topk):
            return pre_decoder(*args, **kwargs)

    with override(model, 'pre_decoder', choose):
        yield chosen
