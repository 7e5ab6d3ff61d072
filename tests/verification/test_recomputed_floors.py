"""Check which samples get more noises, and what these excuse."""
from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mmexport import Exporter
from mmexport.adapters import build_adapter
from mmexport.checker.comparison import EAGER, Comparison
from mmexport.utils.progress import Progress
from mmexport.verification import noise_floor
from mmexport.verification.expected import expect, recomputed_floors
from mmexport.verification.network_runs import NetworkRuns
from mmexport.verification.noise_floor import NOISE, noise
from mmexport.verification.verify import Verification
from mmexport.verification.verify_all import ArtifactVerifier
from tests.simple import IMAGE, simple
from tests.tiny import seeded, tiny
from tests.verification.test_expected import noisy


@pytest.mark.parametrize('jumps', [True, False])
def test_second_look_excuses_only_jumps_of_eager(jumps: bool, tmp_path: Path,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """A jump of a few rows that the first noise did not show: more noises are tried, and the file judged again."""
    report, = Exporter(tiny('segformer_b0', outputs='raw'), model=seeded('segformer_b0'), work_dir=tmp_path, samples=False).run()
    adapter, runs = build_adapter(seeded('segformer_b0'), outputs='raw'), NetworkRuns()
    images = {name: torch.rand(1, 3, *size) for name, size in (('traced', (128, 160)), ('same shape', (128, 160)), ('tall', (161, 97)))}
    samples = expect(adapter, images, 1e-4, 1, runs)
    # Eager's answer on one input has its first row moved by 0.4% of its scale, which the file's has not.
    wrong = samples[2].expected['logits'].clone()
    wrong[:, :, :1] += 4e-3 * wrong.abs().max()
    samples[2] = replace(samples[2], expected={'logits': wrong})
    assert samples[2].floors == {'logits': 0.0}
    calm = adapter.run_with_evidence

    def noisy(image: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        (logits,), recorded = calm(image)
        known = torch.equal(image, samples[2].image)
        # With noise eager jumps there and back, or stays where it is.
        turned = logits.clone()
        if image.shape == samples[2].image.shape and not (jumps and not known):
            turned[:, :, :1] += 4e-3 * logits.abs().max()
        return (turned,), recorded

    monkeypatch.setattr(adapter, 'run_with_evidence', noisy)
    verifier = ArtifactVerifier(adapter, 1e-4, torch.device('cpu'), Progress())
    checks, looked = verifier.verify(report.artifacts, samples, tmp_path / 'scratch', None)
    assert checks[0].passed is jumps, checks[0].reason
    assert (looked[2].floors['logits'] > 0) is jumps
    assert looked[0].floors == samples[0].floors
    # What passed at first was not run again, and stays in the verdict.
    assert sorted({row.sample for row in checks[0].rows}) == ['same shape', 'tall', 'traced']
    assert checks[0].result is not None and checks[0].result['vacuous'] == {}


def failing(name: str, stage: str = EAGER, problem: str | None = None, **figures: float) -> dict[str, Any]:
    actual = dict(max_abs=1e-3, max_rel=1e-3, cosine=1.0, beyond=0.1, median=1e-6)
    return Comparison(name, 'logits', stage, 'pixels', 1e-4, problem=problem, **{**actual, **figures}).as_dict()  # type: ignore[arg-type]


@pytest.mark.parametrize(('rows', 'looked'), [
    ([failing('a')], ['a']), ([failing('a'), failing('b')], ['a', 'b']),
    # Off in every sample, over half of the pixels, in the median, by a hundredth: no jump.
    ([failing('a'), failing('b'), failing('c')], None), ([failing('a', beyond=0.53)], None), ([failing('a', beyond=0.52)], ['a']),
    ([failing('a', median=5.1e-4)], None), ([failing('a', median=4.9e-4)], ['a']),
    ([failing('a', max_rel=1e-2)], None), ([failing('a', problem='NaN')], None),
    ([failing('a', stage='artifact vs patched')], None), ([failing('a', max_rel=1e-5, beyond=0.0)], None)])
def test_second_look_selects_possible_jumps(rows: list[dict[str, Any]], looked: list[str] | None) -> None:
    adapter, runs = simple(), NetworkRuns()
    samples = expect(adapter, {name: IMAGE + number for number, name in enumerate('abc')}, 1e-4, 1, runs)
    before = len(adapter.runs)
    check = Verification('onnx', dict(stale=None, rows=rows, vacuous={}))
    actual = recomputed_floors(adapter, samples, [check], 1e-4, torch.device('cpu'), Progress(quiet=True))
    assert (actual is None) is (looked is None)
    assert len(adapter.runs) - before == 9 * len(looked or [])
    if looked is not None:
        requested = [IMAGE + 'abc'.index(name) for name in looked]
        expected = [image + noise(image, trial, NOISE) for image in requested for trial in range(100, 109)]
        assert all(map(torch.equal, adapter.runs[before:], expected))
        assert actual is not None and [sample.name for sample in actual] == ['a', 'b', 'c']
        assert [one is other for one, other in zip(actual, samples, strict=True)] == [name not in looked for name in 'abc']


def test_second_look_of_a_single_sample() -> None:
    adapter, runs = simple(), NetworkRuns()
    samples = expect(adapter, {'a': IMAGE}, 1e-4, 1, runs)
    check = Verification('onnx', dict(stale=None, rows=[failing('a')], vacuous={}))
    assert recomputed_floors(adapter, samples, [check], 1e-4, torch.device('cpu'), Progress(quiet=True)) is not None


def test_second_look_leaves_two_samples_that_both_fail() -> None:
    adapter, runs = simple(), NetworkRuns()
    samples = expect(adapter, {name: IMAGE + number for number, name in enumerate('ab')}, 1e-4, 1, runs)
    check = Verification('onnx', dict(stale=None, rows=[failing('a'), failing('b')], vacuous={}))
    assert recomputed_floors(adapter, samples, [check], 1e-4, torch.device('cpu'), Progress(quiet=True)) is None


def test_second_look_uses_a_larger_model_floor() -> None:
    """A query that jumps on another sample excuses as many here."""
    adapter, runs = simple(), NetworkRuns()
    samples = expect(adapter, {name: IMAGE + number for number, name in enumerate('ab')}, 1e-4, 1, runs)
    samples[1] = replace(samples[1], floors={'logits': 0.75})
    check = Verification('onnx', dict(stale=None, rows=[failing('a', beyond=0.76)], vacuous={}))
    assert recomputed_floors(adapter, samples, [check], 1e-4, torch.device('cpu'), Progress(quiet=True)) is not None


@pytest.mark.parametrize(('off', 'floor'), [(0.7e-4, 1.0), (0.2e-4, 0.0)])
def test_second_look_counts_half_the_tolerance(off: float, floor: float) -> None:
    """An ill-conditioned model moves by nearly the tolerance under noise; a file, which rounds at every layer, by a little more."""
    adapter, runs = simple(), NetworkRuns()
    noisy(adapter, off)
    samples = expect(adapter, {'photograph': IMAGE}, 1e-4, 1, runs)
    assert samples[0].floors['logits'] == 0.0
    check = Verification('onnx', dict(stale=None, rows=[failing('photograph', beyond=0.3)], vacuous={}))
    looked = recomputed_floors(adapter, samples, [check], 1e-4, torch.device('cpu'), Progress(quiet=True))
    assert looked is not None and looked[0].floors['logits'] == floor
    assert ('logits: median' in looked[0].floors) is (floor > 0)


def test_second_look_keeps_the_tolerance_of_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, runs = simple('final'), NetworkRuns()
    samples = expect(adapter, {'photograph': IMAGE}, 1e-4, 1, runs)
    tolerances: list[tuple[str, float]] = []
    compare = noise_floor.compare

    def noted(*args: Any, **kwargs: Any) -> list[Comparison]:
        rows = compare(*args, **kwargs)
        tolerances.extend((row.output, row.tolerance) for row in rows)
        return [replace(row, beyond=1.0 if row.tolerance < 1e-4 else 0.0) for row in rows]

    monkeypatch.setattr(noise_floor, 'compare', noted)
    check = Verification('onnx', dict(stale=None, rows=[failing('photograph')], vacuous={}))
    looked = recomputed_floors(adapter, samples, [check], 1e-4, torch.device('cpu'), Progress(quiet=True))
    assert set(tolerances) == {('labels', 1e-4), ('labels', 5e-5), ('logits', 1e-4), ('logits', 5e-5)}
    assert looked is not None and looked[0].floors == {'labels': 0.0, 'logits': 1.0}
