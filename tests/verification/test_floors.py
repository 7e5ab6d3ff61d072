"""Test the noise floors of the expected outputs."""
from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mmexport.adapters.base import OutputSpec
from mmexport.checker.compare import lost_key, own_floors
from mmexport.verification.expected import expect
from mmexport.verification.network_runs import NetworkRuns
from mmexport.verification.noise_floor import model_floors
from tests.checker.made import INSTANCE, instances
from tests.simple import IMAGE, noisy, simple


def test_floor_is_the_largest_share_over_noises() -> None:
    adapter = simple()
    noisy(adapter, 1e-2, slice(0, 2))
    images = {'photograph': IMAGE, 'wide': torch.rand(1, 3, 8, 12)}
    samples = expect(adapter, images, 1e-4, 3, NetworkRuns(), as_given=('photograph', 'wide'))
    assert [sample.floors for sample in samples] == [{'logits': 0.25}, {'logits': 0.0}]
    assert model_floors(samples) == {'logits': 0.25}
    # Each picture once, the first twice, and three noises of each.
    assert len(adapter.runs) == 3 + 6


def test_expect_without_noises_has_no_floors() -> None:
    adapter = simple()
    noisy(adapter, 1e-2)
    sample, = expect(adapter, {'photograph': IMAGE}, 1e-4, 0, NetworkRuns())
    assert (sample.floors, len(adapter.runs)) == ({}, 2)


def test_floors_cover_final_and_raw_outputs() -> None:
    adapter = simple('final')
    noisy(adapter, 1e-2, slice(0, 2))
    sample, = expect(adapter, {'photograph': IMAGE}, 1e-4, 1, NetworkRuns())
    assert sample.floors == {'labels': 0.0, 'logits': 0.25}


def test_floors_keep_the_largest_of_all_noises() -> None:
    """The first noise moves all pixels by 1e-2 of the scale, the second by half as much."""
    adapter = simple()
    offs = iter([1e-2, 5e-3, 1e-3])
    adapter.change = lambda image, logits: logits if torch.equal(image, IMAGE) else logits + next(offs) * logits.abs().max()
    sample, = expect(adapter, {'photograph': IMAGE}, 1e-4, 3, NetworkRuns())
    assert sample.floors == {'logits': 1.0, 'logits: median': pytest.approx(1e-2, rel=1e-3)}


def test_floors_count_lost_instances() -> None:
    adapter = simple('final')
    adapter.specs = [OutputSpec(str(spec['name']), '', ('batch',), 'instance') for spec in INSTANCE]
    adapter.evidence = lambda raw, image, seen: {}
    lost = iter([2, 1])

    def decide(raw: tuple[Tensor, ...], image: Tensor) -> tuple[Tensor, ...]:
        rows = instances()
        if not torch.equal(image, IMAGE):
            count = 3 - next(lost)
            rows['num'][0] = count
            for name in ('boxes', 'scores', 'labels', 'masks'):
                rows[name][0, count:] = 0
        return tuple(rows.values())

    adapter.decide = decide
    sample, = expect(adapter, {'photograph': IMAGE}, 1e-4, 2, NetworkRuns())
    assert sample.floors[lost_key('instances')] == pytest.approx(2 / 3)


def test_what_noise_does_to_detections_counts_for_their_sample_alone() -> None:
    """Of each row the evidence tells whether rounding may change it: a row that one picture loses excuses none of another."""
    one, other = (replace(sample, floors=floors) for sample, floors in zip(
        expect(simple(), {'photograph': IMAGE, 'wide': torch.rand(1, 3, 8, 12)}, 1e-4, 0, NetworkRuns()),
        ({'detections': 0.1, lost_key('detections'): 0.1, 'logits': 0.2}, {'detections': 0.0}), strict=True))
    assert model_floors([one, other]) == {'logits': 0.2}
    assert own_floors(one.floors) == {'detections': 0.1, lost_key('detections'): 0.1}


def test_without_noises_nothing_jumps() -> None:
    adapter = simple()
    expect(adapter, {'photograph': IMAGE}, 1e-4, 0, NetworkRuns())
    known = len(adapter.runs)
    adapter.runs.clear()
    expect(adapter, {'traced': IMAGE}, 1e-4, 0, NetworkRuns())
    assert len(adapter.runs) == known
