from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mmexport import Exporter
from mmexport.adapters import build_adapter
from mmexport.expected import Memory, expect
from mmexport.progress import Progress
from mmexport.proof import Proof
from tests.tiny import seeded, tiny

IMAGES = {'traced': torch.rand(1, 3, 64, 64), 'another size': torch.rand(1, 3, 96, 64)}


def _noises(memory: Memory) -> list[str]:
    return sorted({key[3] for key in memory.seen if key[3].startswith('noise')})


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
    samples = expect(adapter, IMAGES, 1e-4, 3, memory, as_given=IMAGES)
    assert samples[0].floors['logits'] > 0.1
    assert samples[1].floors['logits'] == 0
    assert _noises(memory) == ['noise 0', 'noise 1', 'noise 2']
    assert len(memory.seen) == 8


def test_a_small_picture_on_which_eager_jumps_is_replaced_by_one_on_which_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = build_adapter(seeded('segformer_b0'), outputs='raw')
    image = torch.rand(1, 3, 64, 64)
    calm = adapter.watch

    def watch(asked: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        (logits,), seen = calm(asked)
        near = 0 < float((asked - image).abs().max()) < 1e-3
        return (-logits if near else logits,), seen

    monkeypatch.setattr(adapter, 'watch', watch)
    moved, given = expect(adapter, {'traced': image, 'photograph': image}, 1e-4, 1, Memory())
    assert moved.floors == {'logits': 0.0}
    assert 1e-3 < float((moved.image - image).abs().max()) < 0.1
    assert given.floors['logits'] > 0.1
    assert torch.equal(given.image, image)


def test_a_synthetic_picture_is_moved_off_the_models_close_calls_and_a_photograph_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = build_adapter(seeded('segformer_b0'), outputs='raw')
    image = torch.rand(1, 3, 64, 64)
    calm = adapter.watch

    def watch(asked: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        # On the picture itself, and on it with noise of 1e-6, two cells lie at the threshold.
        at_the_edge = bool((asked - image).abs().max() < 1e-3)
        _ = torch.tensor([0.5, 0.500001, 0.7] if at_the_edge else [0.4, 0.6, 0.7]) < 0.5
        return calm(asked)

    monkeypatch.setattr(adapter, 'watch', watch)
    synthetic, own = expect(adapter, {'traced': image, 'photograph': image}, 1e-4, 0, Memory())
    assert torch.equal(own.image, image)
    assert 1e-3 < float((synthetic.image - image).abs().max()) < 0.1
    assert torch.equal(synthetic.expected['logits'], adapter.raw(synthetic.image)[0])


@pytest.mark.parametrize('jumps', [True, False])
def test_a_second_look_excuses_what_eager_does_itself_and_nothing_else(jumps: bool, tmp_path: Path,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """A jump of a few rows that the first noise did not show: more noises are tried, and the file judged again."""
    report = Exporter(tiny('segformer_b0', outputs='raw'), model=seeded('segformer_b0'), work_dir=tmp_path, samples=False).run()
    adapter, memory = build_adapter(seeded('segformer_b0'), outputs='raw'), Memory()
    images = {name: torch.rand(1, 3, *size) for name, size in (('traced', (128, 160)), ('same shape', (128, 160)), ('tall', (161, 97)))}
    samples = expect(adapter, images, 1e-4, 1, memory)
    # Eager's answer on one input has its first row moved by 0.4% of its scale, which the file's has not.
    wrong = samples[2].expected['logits'].clone()
    wrong[:, :, :1] += 4e-3 * wrong.abs().max()
    samples[2] = replace(samples[2], expected={'logits': wrong})
    assert samples[2].floors == {'logits': 0.0}
    calm = adapter.watch

    def watch(image: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        (logits,), seen = calm(image)
        known = torch.equal(image, samples[2].image)
        # With noise eager jumps there and back, or stays where it is.
        turned = logits.clone()
        if image.shape == samples[2].image.shape and not (jumps and not known):
            turned[:, :, :1] += 4e-3 * logits.abs().max()
        return (turned,), seen

    monkeypatch.setattr(adapter, 'watch', watch)
    proof = Proof(adapter, 1e-4, torch.device('cpu'), memory, Progress())
    checks, looked = proof.verify(report.artifacts, samples, tmp_path / 'scratch', None)
    assert checks[0].passed is jumps, checks[0].reason
    assert (looked[2].floors['logits'] > 0) is jumps
    assert looked[0].floors == samples[0].floors
    # What passed at first was not run again, and stays in the verdict.
    assert sorted({row.sample for row in checks[0].rows}) == ['same shape', 'tall', 'traced']
    assert checks[0].found is not None and checks[0].found['vacuous'] == {}
