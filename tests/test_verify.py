from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mmexport.adapters import build_adapter
from mmexport.verify import Memory, expect
from tests.tiny import seeded

IMAGES = {'traced': torch.rand(1, 3, 64, 64), 'another size': torch.rand(1, 3, 96, 64)}


def _noises(memory: Memory) -> list[str]:
    return sorted({when.strip() for _, when, _ in memory.seen if when.startswith('noise')})


def test_a_model_that_noise_does_not_move_is_given_one() -> None:
    adapter, memory = build_adapter(seeded('segformer_b0'), outputs='raw'), Memory()
    samples = expect(adapter, IMAGES, 1e-4, 3, memory)
    assert [sample.floors for sample in samples] == [{'logits': 0.0}] * 2
    assert _noises(memory) == ['noise 0']


def test_one_image_that_noise_moves_brings_all_noises_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, memory = build_adapter(seeded('segformer_b0'), outputs='raw'), Memory()
    calm: Callable[[Tensor], tuple[tuple[Tensor, ...], dict[str, Tensor]]] = adapter.watch

    def watch(image: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        raw, seen = calm(image)
        known = any(torch.equal(image, own) for own in IMAGES.values())
        # Noise turns the upper half of the first picture's outputs over.
        jumped = tuple(torch.cat([-out[:, :, :8], out[:, :, 8:]], dim=2) for out in raw)
        return (raw if known or image.shape[2] == 96 else jumped), seen

    monkeypatch.setattr(adapter, 'watch', watch)
    samples = expect(adapter, IMAGES, 1e-4, 3, memory)
    assert samples[0].floors['logits'] > 0.1
    assert samples[1].floors['logits'] == 0
    assert _noises(memory) == ['noise 0', 'noise 1', 'noise 2']
    assert len(memory.seen) == 8
