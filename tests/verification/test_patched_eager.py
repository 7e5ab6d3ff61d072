"""Test outputs of the patched eager model."""
from __future__ import annotations

import torch

from mmexport.verification.expected import expect
from mmexport.verification.network_runs import NetworkRuns
from mmexport.verification.patched_eager import with_patched
from tests.simple import IMAGE, simple


def test_with_patched_adds_patched_outputs() -> None:
    adapter, runs = simple('final'), NetworkRuns()
    samples = expect(adapter, {'a': IMAGE, 'b': IMAGE + 1}, 1e-4, 0, runs)
    adapter.change = lambda image, logits: -logits
    done = with_patched(adapter, samples, torch.device('cpu'), NetworkRuns())
    assert [sample.name for sample in done] == ['a', 'b']
    for before, after in zip(samples, done, strict=True):
        assert torch.equal(after.patched['labels'], 1 - before.expected['labels'])
        assert after.expected is before.expected and after.raw is before.raw
    assert {key[1] for key in runs.outputs} == {'eager'}


def test_raw_outputs_and_decisions_share_the_run_of_the_network() -> None:
    final, raw, runs = simple('final'), simple('raw'), NetworkRuns()
    samples = {adapter.outputs: expect(adapter, {'a': IMAGE}, 1e-4, 0, NetworkRuns()) for adapter in (final, raw)}
    with_patched(final, samples['final'], torch.device('cpu'), runs)
    before = len(raw.runs)
    done, = with_patched(raw, samples['raw'], torch.device('cpu'), runs)
    assert done.patched and len(raw.runs) == before
