from __future__ import annotations

import torch
from torch import Tensor

from mmexport.adapters import build_adapter
from mmexport.inputs.synthetic import picture
from mmexport.verification.noise_floor import FEW, WIDTH, NearThresholdCounter, move_off_thresholds
from tests.tiny import SHAPE, seeded


def test_comparisons_near_their_threshold_are_counted() -> None:
    values = torch.tensor([0.5, 0.5 + WIDTH / 4, 0.5 - WIDTH / 4, 0.6, 1.0])
    with NearThresholdCounter() as counter:
        values < 0.5, values >= torch.full((5,), 0.6), values.int() > 0, values.sum() * 2
    assert counter.count == 4


def test_move_off_thresholds_moves_images_with_few_of_them() -> None:
    image = torch.rand(1, 3, 8, 8)
    requested: list[Tensor] = []

    def few(candidate: Tensor) -> int:
        requested.append(candidate)
        return [2, 2, 1, 3, 0][len(requested) - 1]

    moved = move_off_thresholds(image, few)
    assert len(requested) == 5
    assert moved is requested[-1]
    assert 0 < float((moved - image).abs().max()) < 0.1
    assert move_off_thresholds(image, lambda _: FEW + 1) is image
    # Where none is free of them, the best is taken.
    counts = iter([3, 3, 2, 3, 1, 3, 3, 3, 3])
    assert not torch.equal(move_off_thresholds(image, lambda _: next(counts)), image)
    assert next(counts, None) is None


def test_masked_attention_is_a_comparison_that_is_seen() -> None:
    """As many as the masks have cells would lie within a width of everything."""
    adapter = build_adapter(seeded('mask2former_r50'), outputs='raw')
    with torch.no_grad(), NearThresholdCounter() as counter:
        adapter.run_with_evidence(picture(SHAPE, 0, adapter))
        narrow = counter.count
    import mmexport.verification.noise_floor as cliffs
    width, cliffs.WIDTH = cliffs.WIDTH, 0.5
    try:
        with torch.no_grad(), NearThresholdCounter() as counter:
            adapter.run_with_evidence(picture(SHAPE, 0, adapter))
    finally:
        cliffs.WIDTH = width
    assert narrow < 50 < 1000 < counter.count
