"""Check what is expected of a file, and what eager itself does under noise."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mmexport import Exporter
from mmexport.adapters import build_adapter
from mmexport.checking.comparison import Comparison
from mmexport.checking.main import EAGER
from mmexport.expected import expect, model_floors, second_look, typical_seconds, with_patched
from mmexport.memory import Memory
from mmexport.progress import Progress
from mmexport.proof import Proof
from mmexport.verify import Verification
from tests.simple import IMAGE, Plain, simple
from tests.tiny import seeded, tiny

IMAGES = {'traced': torch.rand(1, 3, 64, 64), 'another size': torch.rand(1, 3, 96, 64)}


def _noises(memory: Memory) -> list[str]:
    return sorted({key[3] for key in memory.seen if key[3].startswith('noise')})


def test_expect_tries_one_noise_on_a_stable_model() -> None:
    adapter, memory = simple(), Memory()
    samples = expect(adapter, IMAGES, 1e-4, 3, memory)
    assert [sample.floors for sample in samples] == [{'logits': 0.0}] * 2
    assert _noises(memory) == ['noise 0']


def test_expect_tries_all_noises_if_one_image_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, memory = simple(), Memory()
    calm: Callable[[Tensor], tuple[tuple[Tensor, ...], dict[str, Tensor]]] = adapter.watch

    def watch(image: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        raw, seen = calm(image)
        known = any(torch.equal(image, own) for own in IMAGES.values())
        # Noise turns the upper half of the first picture's outputs over.
        jumped = tuple(torch.cat([-out[:, :, :32], out[:, :, 32:]], dim=2) for out in raw)
        return (raw if known or image.shape[2] == 96 else jumped), seen

    monkeypatch.setattr(adapter, 'watch', watch)
    samples = expect(adapter, IMAGES, 1e-4, 3, memory, as_given=IMAGES)
    assert samples[0].floors['logits'] > 0.1
    assert samples[1].floors['logits'] == 0
    assert _noises(memory) == ['noise 0', 'noise 1', 'noise 2']
    assert len(memory.seen) == 8


def test_expect_replaces_a_small_image_with_jumps(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = simple()
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


def test_expect_moves_synthetic_images_off_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = simple()
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
    assert torch.equal(synthetic.expected['logits'], calm(synthetic.image)[0][0])


@pytest.mark.parametrize('jumps', [True, False])
def test_second_look_excuses_only_jumps_of_eager(jumps: bool, tmp_path: Path,
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


def test_expect_keeps_outputs_and_evidence() -> None:
    raw, final = expect(simple(), {'a': IMAGE}, 1e-4, 0, Memory())[0], expect(simple('final'), {'a': IMAGE}, 1e-4, 0, Memory())[0]
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
    sample, = expect(adapter, {'photograph': IMAGE.clone()}, 1e-4, 2, Memory())
    assert torch.equal(sample.image, IMAGE)


def noisy(adapter: Any, off: float, part: slice = slice(None)) -> None:
    """Let noise of 1e-6 move some rows of the logits by `off` of their scale, on pictures of 8x8."""
    def change(image: Tensor, logits: Tensor) -> Tensor:
        if image.shape[-1] == 8 and not any(torch.equal(image, own) for own in adapter.calm):
            logits = logits.clone()
            logits[:, :, part] += off * logits.abs().max()
        return logits

    adapter.calm, adapter.change = [IMAGE], change


def test_floor_is_the_largest_share_over_noises() -> None:
    adapter = simple()
    noisy(adapter, 1e-2, slice(0, 2))
    samples = expect(adapter, {'photograph': IMAGE, 'wide': torch.rand(1, 3, 8, 12)}, 1e-4, 3, Memory(), as_given=('photograph', 'wide'))
    assert [sample.floors for sample in samples] == [{'logits': 0.25}, {'logits': 0.0}]
    assert model_floors(samples) == {'logits': 0.25}
    # Each picture once, the first twice, and three noises of each.
    assert len(adapter.runs) == 3 + 6


def test_expect_without_noises_has_no_floors() -> None:
    adapter = simple()
    noisy(adapter, 1e-2)
    sample, = expect(adapter, {'photograph': IMAGE}, 1e-4, 0, Memory())
    assert (sample.floors, len(adapter.runs)) == ({}, 2)


def test_expect_runs_large_images_once() -> None:
    adapter = simple()
    noisy(adapter, 1e-2)
    large = torch.rand(1, 3, 9, 9)
    samples = expect(adapter, {'photograph': IMAGE, 'large': large}, 1e-4, 3, Memory(), once=('large',))
    assert [sample.floors for sample in samples] == [{'logits': 1.0, 'logits: median': pytest.approx(1e-2, rel=1e-3)}, {}]
    assert sum(torch.equal(run, large) for run in adapter.runs) == 1
    assert len(adapter.runs) == 2 + 3 + 1


def test_floors_cover_final_and_raw_outputs() -> None:
    adapter = simple('final')
    noisy(adapter, 1e-2, slice(0, 2))
    sample, = expect(adapter, {'photograph': IMAGE}, 1e-4, 1, Memory())
    assert sample.floors == {'labels': 0.0, 'logits': 0.25}


def test_expect_keeps_an_image_that_always_jumps() -> None:
    adapter = simple()
    adapter.change = lambda image, logits: logits + float(image.double().sum() * 1e7 % 100)
    memory = Memory()
    sample, = expect(adapter, {'traced': IMAGE}, 1e-4, 1, memory)
    assert torch.equal(sample.image, IMAGE)
    assert sample.floors['logits'] > 0
    # Twice the picture and its noise, then three others with a noise each; branches are those of the picture.
    assert len(adapter.runs) == 2 + 1 + 3 * 2
    assert memory.branches['traced'] is memory.runs[memory._key(adapter, 'traced', 'eager', IMAGE)]


@pytest.mark.parametrize(('side', 'moved'), [(8, True), (330, False)])
def test_expect_replaces_small_images_only(side: int, moved: bool) -> None:
    adapter, image = simple(), torch.rand(1, 3, side, side)

    def change(asked: Tensor, logits: Tensor) -> Tensor:
        near = 0 < float((asked - image).abs().max()) < 1e-3
        return -logits if near else logits

    adapter.change = change
    sample, = expect(adapter, {'traced': image}, 1e-4, 1, Memory())
    assert torch.equal(sample.image, image) is not moved
    assert (sample.floors['logits'] == 0) is moved


def test_with_patched_adds_patched_outputs() -> None:
    adapter, memory = simple('final'), Memory()
    samples = expect(adapter, {'a': IMAGE, 'b': IMAGE + 1}, 1e-4, 0, memory)
    adapter.change = lambda image, logits: -logits
    memory.patches = 'turned'
    done = with_patched(adapter, samples, torch.device('cpu'), memory)
    assert [sample.name for sample in done] == ['a', 'b']
    for before, after in zip(samples, done, strict=True):
        assert torch.equal(after.patched['labels'], 1 - before.expected['labels'])
        assert after.expected is before.expected and after.raw is before.raw
    assert {key[3] for key in memory.seen} == {'eager', 'patched'}


def test_typical_seconds_times_the_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def adapter(image: Tensor) -> None:
        asked.append((image, torch.is_grad_enabled()))

    monkeypatch.setattr('mmexport.expected.typical', lambda run, device: (run(), device)[1])
    assert typical_seconds(adapter, IMAGE) == torch.device('cpu')  # type: ignore[arg-type]
    assert asked == [(IMAGE, False)]


def failing(name: str, stage: str = EAGER, problem: str | None = None, **figures: float) -> dict[str, Any]:
    found = dict(max_abs=1e-3, max_rel=1e-3, cosine=1.0, beyond=0.1, median=1e-6)
    return Comparison(name, 'logits', stage, 'pixels', 1e-4, problem=problem, **{**found, **figures}).as_dict()  # type: ignore[arg-type]


@pytest.mark.parametrize(('rows', 'looked'), [
    ([failing('a')], ['a']), ([failing('a'), failing('b')], ['a', 'b']),
    # Off in every sample, over half of the pixels, in the median, by a hundredth: no jump.
    ([failing('a'), failing('b'), failing('c')], None), ([failing('a', beyond=0.53)], None), ([failing('a', beyond=0.52)], ['a']),
    ([failing('a', median=5.1e-4)], None), ([failing('a', median=4.9e-4)], ['a']),
    ([failing('a', max_rel=1e-2)], None), ([failing('a', problem='NaN')], None),
    ([failing('a', stage='artifact vs patched')], None), ([failing('a', max_rel=1e-5, beyond=0.0)], None)])
def test_second_look_selects_possible_jumps(rows: list[dict[str, Any]], looked: list[str] | None) -> None:
    adapter, memory = simple(), Memory()
    samples = expect(adapter, {name: IMAGE + number for number, name in enumerate('abc')}, 1e-4, 1, memory)
    before = len(adapter.runs)
    check = Verification('onnx', dict(stale=None, rows=rows, vacuous={}))
    found = second_look(adapter, samples, [check], 1e-4, torch.device('cpu'), memory, Progress(quiet=True))
    assert (found is None) is (looked is None)
    assert len(adapter.runs) - before == 9 * len(looked or [])
    if looked is not None:
        assert {key[3] for key in memory.seen if key[3].startswith('noise 1')} == {f'noise {trial}' for trial in range(100, 109)}
        assert {key[2] for key in memory.seen if key[3] == 'noise 100'} == set(looked)
        assert found is not None and [sample.name for sample in found] == ['a', 'b', 'c']
        assert [one is other for one, other in zip(found, samples, strict=True)] == [name not in looked for name in 'abc']


def test_second_look_of_a_single_sample() -> None:
    adapter, memory = simple(), Memory()
    samples = expect(adapter, {'a': IMAGE}, 1e-4, 1, memory)
    check = Verification('onnx', dict(stale=None, rows=[failing('a')], vacuous={}))
    assert second_look(adapter, samples, [check], 1e-4, torch.device('cpu'), memory, Progress(quiet=True)) is not None


def test_second_look_uses_a_larger_model_floor() -> None:
    """A query that jumps on another sample excuses as many here."""
    adapter, memory = simple(), Memory()
    samples = expect(adapter, {name: IMAGE + number for number, name in enumerate('ab')}, 1e-4, 1, memory)
    samples[1] = replace(samples[1], floors={'logits': 0.75})
    check = Verification('onnx', dict(stale=None, rows=[failing('a', beyond=0.76)], vacuous={}))
    assert second_look(adapter, samples, [check], 1e-4, torch.device('cpu'), memory, Progress(quiet=True)) is not None


@pytest.mark.parametrize(('off', 'floor'), [(0.7e-4, 1.0), (0.2e-4, 0.0)])
def test_second_look_counts_half_the_tolerance(off: float, floor: float) -> None:
    """An ill-conditioned model moves by nearly the tolerance under noise; a file, which rounds at every layer, by a little more."""
    adapter, memory = simple(), Memory()
    noisy(adapter, off)
    samples = expect(adapter, {'photograph': IMAGE}, 1e-4, 1, memory)
    assert samples[0].floors['logits'] == 0.0
    check = Verification('onnx', dict(stale=None, rows=[failing('photograph', beyond=0.3)], vacuous={}))
    looked = second_look(adapter, samples, [check], 1e-4, torch.device('cpu'), memory, Progress(quiet=True))
    assert looked is not None and looked[0].floors['logits'] == floor
    assert ('logits: median' in looked[0].floors) is (floor > 0)
