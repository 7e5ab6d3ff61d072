"""Check when a network is run again, and what is kept of a run."""
from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mmexport.verification.network_runs import NetworkRuns
from tests.simple import IMAGE, simple


def test_network_runs_each_input_once() -> None:
    adapter, runs = simple(), NetworkRuns()
    first = runs.run(adapter, 'traced', 'eager', IMAGE)
    # The first of all is run twice: with its branches recorded, and without.
    assert len(adapter.runs) == 2
    assert runs.run(adapter, 'traced', 'eager', IMAGE.clone()) is first
    assert len(adapter.runs) == 2
    for name, when, image in (('tall', 'eager', IMAGE), ('traced', 'noise 0', IMAGE), ('traced', 'eager', IMAGE + 1e-6),
                              ('traced', 'eager', IMAGE.view(1, 3, 4, 16))):
        before = len(adapter.runs)
        runs.run(adapter, name, when, image)
        assert len(adapter.runs) == before + 1, (name, when)


def test_network_keeps_branches_of_the_last_run() -> None:
    adapter, runs = simple(), NetworkRuns()
    adapter.change = lambda image, logits: logits * (2 if image.shape[2] > 8 else 1)
    runs.run(adapter, 'traced', 'eager', IMAGE)
    first = runs.branches['traced']
    # That one branch with its answer.
    assert len(first.conditions) == 1
    runs.run(adapter, 'traced', 'noise 0', IMAGE)
    assert runs.branches == {'traced': first}
    runs.run(adapter, 'traced', 'eager', IMAGE + 1)
    assert runs.branches['traced'] is not first
    runs.run(adapter, 'traced', 'eager', IMAGE)
    assert runs.branches['traced'] is first


def test_network_falls_back_if_recording_raises() -> None:
    adapter, runs = simple(), NetworkRuns()

    def raising_once(image: Tensor, logits: Tensor) -> Tensor:
        if len(adapter.runs) == 1:
            raise TypeError('first\nno such size')
        return logits + 1

    adapter.change = raising_once
    actual, _ = runs.run(adapter, 'traced', 'eager', IMAGE)
    assert torch.equal(actual[0], torch.einsum('kc,nchw->nkhw', adapter.model.weight, IMAGE) + 1)
    assert runs.note == 'TypeError: no such size'
    assert len(adapter.runs) == 2
    runs.run(adapter, 'tall', 'eager', IMAGE)
    assert len(adapter.runs) == 3
    assert runs.branches['tall'].conditions == {}


def test_network_falls_back_if_recording_changes_output() -> None:
    adapter, runs = simple(), NetworkRuns()
    adapter.change = lambda image, logits: logits + (1 if len(adapter.runs) == 1 else 0)
    actual, _ = runs.run(adapter, 'traced', 'eager', IMAGE)
    assert torch.equal(actual[0], torch.einsum('kc,nchw->nkhw', adapter.model.weight, IMAGE))
    assert runs.note == 'the model answers otherwise while its branches are recorded'
    assert runs.branches['traced'].conditions == {}


def test_network_lets_model_errors_through() -> None:
    adapter = simple()
    adapter.change = lambda image, logits: logits.view(7)
    with pytest.raises(RuntimeError, match='invalid for input'):
        NetworkRuns().run(adapter, 'traced', 'eager', IMAGE)


def test_network_counts_close_comparisons_once() -> None:
    adapter, runs = simple(), NetworkRuns()
    adapter.change = lambda image, logits: logits * (torch.tensor([0.5, 0.500001, 0.7]) < 0.5).sum()
    assert runs.count_near_thresholds(adapter, 'traced', IMAGE) == 2
    count = len(adapter.runs)
    assert runs.count_near_thresholds(adapter, 'traced', IMAGE) == 2
    assert len(adapter.runs) == count


def test_network_fixes_random_numbers() -> None:
    adapter = simple()
    adapter.change = lambda image, logits: logits + torch.rand(())
    one, other = (NetworkRuns().run(adapter, 'traced', when, IMAGE)[0][0] for when in ('eager', 'noise 0'))
    assert torch.equal(one, other)


def test_new_runs_record_branches() -> None:
    assert NetworkRuns().note is None
