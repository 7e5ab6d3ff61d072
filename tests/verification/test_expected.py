"""Check what is expected of a file, and what eager itself does under noise."""
from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from mmexport.verification.expected import expect
from mmexport.verification.network_runs import NetworkRuns, _key
from tests.simple import IMAGE, Plain, noisy, simple

IMAGES = {'traced': torch.rand(1, 3, 64, 64), 'another size': torch.rand(1, 3, 96, 64)}


def _noises(runs: NetworkRuns) -> list[str]:
    return sorted({key[1] for key in runs.outputs if key[1].startswith('noise')})


def test_expect_tries_one_noise_on_a_stable_model() -> None:
    adapter, runs = simple(), NetworkRuns()
    samples = expect(adapter, IMAGES, 1e-4, 3, runs)
    assert [sample.floors for sample in samples] == [{'logits': 0.0}] * 2
    assert _noises(runs) == ['noise 0']


def test_expect_tries_all_noises_if_one_image_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, runs = simple(), NetworkRuns()
    calm: Callable[[Tensor], tuple[tuple[Tensor, ...], dict[str, Tensor]]] = adapter.run_with_evidence

    def noisy(image: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        raw, recorded = calm(image)
        known = any(torch.equal(image, own) for own in IMAGES.values())
        # Noise turns the upper half of the first picture's outputs over.
        jumped = tuple(torch.cat([-out[:, :, :32], out[:, :, 32:]], dim=2) for out in raw)
        return (raw if known or image.shape[2] == 96 else jumped), recorded

    monkeypatch.setattr(adapter, 'run_with_evidence', noisy)
    samples = expect(adapter, IMAGES, 1e-4, 3, runs, as_given=IMAGES)
    assert samples[0].floors['logits'] > 0.1
    assert samples[1].floors['logits'] == 0
    assert _noises(runs) == ['noise 0', 'noise 1', 'noise 2']
    assert len(runs.outputs) == 8


def test_expect_replaces_a_small_image_with_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = simple()
    image = torch.rand(1, 3, 64, 64)
    calm = adapter.run_with_evidence

    def noisy(asked: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        (logits,), recorded = calm(asked)
        near = 0 < float((asked - image).abs().max()) < 1e-3
        return (-logits if near else logits,), recorded

    monkeypatch.setattr(adapter, 'run_with_evidence', noisy)
    moved, given = expect(adapter, {'traced': image, 'photograph': image}, 1e-4, 1, NetworkRuns())
    assert (moved.name, moved.floors) == ('traced', {'logits': 0.0})
    assert 1e-3 < float((moved.image - image).abs().max()) < 0.1
    assert given.floors['logits'] > 0.1
    assert torch.equal(given.image, image)


def test_expect_moves_synthetic_images_off_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = simple()
    image = torch.rand(1, 3, 64, 64)
    calm = adapter.run_with_evidence

    def noisy(asked: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        # On the picture itself, and on it with noise of 1e-6, two cells lie at the threshold.
        at_the_edge = bool((asked - image).abs().max() < 1e-3)
        _ = torch.tensor([0.5, 0.500001, 0.7] if at_the_edge else [0.4, 0.6, 0.7]) < 0.5
        return calm(asked)

    monkeypatch.setattr(adapter, 'run_with_evidence', noisy)
    synthetic, own = expect(adapter, {'traced': image, 'photograph': image}, 1e-4, 0, NetworkRuns())
    assert torch.equal(own.image, image)
    assert 1e-3 < float((synthetic.image - image).abs().max()) < 0.1
    assert torch.equal(synthetic.expected['logits'], calm(synthetic.image)[0][0])


def test_expect_keeps_outputs_and_evidence() -> None:
    raw, final = expect(simple(), {'a': IMAGE}, 1e-4, 0, NetworkRuns())[0], expect(simple('final'), {'a': IMAGE}, 1e-4, 0, NetworkRuns())[0]
    logits = torch.einsum('kc,nchw->nkhw', Plain().weight, IMAGE)
    assert (raw.name, list(raw.expected), list(raw.evidence)) == ('a', ['logits'], ['seen'])
    assert (raw.raw, raw.raw_evidence, raw.floors) == ({}, {}, {})
    assert torch.equal(raw.expected['logits'], logits) and torch.equal(raw.image, IMAGE)
    assert (list(final.expected), list(final.evidence)) == (['labels'], ['margin'])
    assert (list(final.raw), list(final.raw_evidence)) == (['logits'], ['seen'])
    assert torch.equal(final.expected['labels'], logits.argmax(1).int()) and torch.equal(final.raw['logits'], logits)
    assert not raw.expected['logits'].requires_grad


def test_expect_protects_the_sample_image() -> None:
    adapter = simple()
    adapter.change = lambda image, logits: logits + 0 * image.mul_(0).sum()
    sample, = expect(adapter, {'photograph': IMAGE.clone()}, 1e-4, 2, NetworkRuns())
    assert torch.equal(sample.image, IMAGE)


def test_expect_runs_large_images_once() -> None:
    adapter = simple()
    noisy(adapter, 1e-2)
    large = torch.rand(1, 3, 9, 9)
    samples = expect(adapter, {'photograph': IMAGE, 'large': large}, 1e-4, 3, NetworkRuns(), once=('large',))
    assert [sample.floors for sample in samples] == [{'logits': 1.0, 'logits: median': pytest.approx(1e-2, rel=1e-3)}, {}]
    assert sum(torch.equal(run, large) for run in adapter.runs) == 1
    assert len(adapter.runs) == 2 + 3 + 1


def test_expect_keeps_an_image_that_always_jumps() -> None:
    adapter = simple()
    adapter.change = lambda image, logits: logits + float(image.double().sum() * 1e7 % 100)
    runs = NetworkRuns()
    sample, = expect(adapter, {'traced': IMAGE}, 1e-4, 1, runs)
    assert torch.equal(sample.image, IMAGE)
    assert sample.floors['logits'] > 0
    # Twice the picture and its noise, then three others with a noise each; branches are those of the picture.
    assert len(adapter.runs) == 2 + 1 + 3 * 2
    assert runs.branches['traced'] is runs.runs[_key('traced', 'eager', IMAGE)]
    # One noise of each of the three, however many there are; of the picture itself all.
    adapter.runs.clear()
    expect(adapter, {'traced': IMAGE}, 1e-4, 3, NetworkRuns())
    assert len(adapter.runs) == 2 + 1 + 3 * 2 + 2


@pytest.mark.parametrize(('side', 'moved'), [(8, True), (330, False)])
def test_expect_replaces_small_images_only(side: int, moved: bool) -> None:
    adapter, image = simple(), torch.rand(1, 3, side, side)

    def change(asked: Tensor, logits: Tensor) -> Tensor:
        near = 0 < float((asked - image).abs().max()) < 1e-3
        return -logits if near else logits

    adapter.change = change
    sample, = expect(adapter, {'traced': image}, 1e-4, 1, NetworkRuns())
    assert torch.equal(sample.image, image) is not moved
    assert (sample.floors['logits'] == 0) is moved


def test_decisions_are_made_once_with_the_image_and_recorded() -> None:
    adapter, runs, requested = simple('final'), NetworkRuns(), []

    def decide(raw: tuple[Tensor, ...], image: Tensor) -> tuple[Tensor, ...]:
        return (raw[0].argmax(dim=1).int() if image.shape[2] > 4 else raw[0].argmin(dim=1).int(),)

    def evidence(raw: tuple[Tensor, ...], image: Tensor, seen: dict[str, Tensor]) -> dict[str, Tensor]:
        requested.append((image, seen))
        return dict(seen)

    adapter.decide, adapter.evidence = decide, evidence
    sample, = expect(adapter, {'photograph': IMAGE}, 1e-4, 2, runs)
    assert [tuple(image.shape) for image, _ in requested] == [(1, 3, 8, 8)]
    assert torch.equal(sample.evidence['seen'], IMAGE.mean(dim=1))
    assert [(site.kind, seen[0]) for (site, _, _), seen in runs.branches['photograph'].conditions.items()] == [('size', True)]
    quiet = NetworkRuns()
    expect(adapter, {'photograph': IMAGE}, 1e-4, 0, quiet)
    assert len(quiet.branches['photograph'].conditions) == 1
