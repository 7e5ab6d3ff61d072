"""Check when a network is run again, and what is kept of a run."""
from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mmexport.verification.memory import Memory
from tests.simple import IMAGE, Plain, simple


def test_memory_runs_each_input_once() -> None:
    adapter, memory = simple(), Memory()
    first = memory.watch(adapter, 'traced', 'eager', IMAGE)
    # The first of all is run twice: with its branches recorded, and without.
    assert len(adapter.runs) == 2
    assert memory.watch(adapter, 'traced', 'eager', IMAGE.clone()) is first
    assert len(adapter.runs) == 2
    for name, when, image in (('tall', 'eager', IMAGE), ('traced', 'noise 0', IMAGE), ('traced', 'eager', IMAGE + 1e-6),
                              ('traced', 'eager', IMAGE.view(1, 3, 4, 16))):
        before = len(adapter.runs)
        memory.watch(adapter, name, when, image)
        assert len(adapter.runs) == before + 1, (name, when)


def test_memory_key_has_patches_for_patched_runs_only() -> None:
    adapter, memory = simple(), Memory()
    for when, more in (('patched', 1), ('eager', 0)):
        memory.patches = ''
        memory.watch(adapter, 'traced', when, IMAGE)
        before = len(adapter.runs)
        memory.patches = 'others'
        memory.watch(adapter, 'traced', when, IMAGE)
        assert len(adapter.runs) == before + more, when


def test_memory_key_follows_the_weights() -> None:
    model, memory = Plain(), Memory()
    before = memory.watch(simple(model=model), 'traced', 'eager', IMAGE)
    assert memory.watch(simple('final', model=model), 'traced', 'eager', IMAGE)[0][0].equal(before[0][0])
    memory.bind(model)
    digest = memory.model[1]
    with torch.no_grad():
        model.weight[0, 0] += 1
    memory.bind(model)
    assert memory.model[1] != digest
    adapter = simple(model=model)
    after = memory.watch(adapter, 'traced', 'eager', IMAGE)
    assert not after[0][0].equal(before[0][0])
    # What was seen of the model with its other weights stays.
    assert len(memory.seen) == 2


def test_memory_digest_has_names_dtypes_and_shapes() -> None:
    def key(model: nn.Module) -> str:
        memory = Memory()
        memory.bind(model)
        return memory.model[1]

    def with_weight(weight: Tensor, name: str = 'weight') -> nn.Module:
        model = nn.Module()
        model.register_buffer(name, weight)
        return model

    weight = torch.arange(6, dtype=torch.int32)
    keys = [key(with_weight(weight)), key(with_weight(weight, 'other')), key(with_weight(weight.view(2, 3))),
            key(with_weight(weight.view(torch.float32))), key(with_weight(weight + 1)), key(Plain(0)), key(Plain(1))]
    assert len(set(keys)) == len(keys)
    assert key(with_weight(weight)) == keys[0]
    # As they are read, not as they lie in memory.
    assert key(with_weight(weight.view(2, 3).T.contiguous().T)) == keys[2]


def test_memory_is_cleared_for_another_model() -> None:
    memory, one, other = Memory(), simple(), simple(model=Plain(1))
    memory.watch(one, 'traced', 'eager', IMAGE)
    memory.audits['any',] = None  # type: ignore[assignment]
    memory.note = 'why'
    memory.watch(other, 'traced', 'eager', IMAGE)
    assert memory.audits == {} and memory.note is None
    assert len(memory.seen) == len(memory.runs) == len(memory.undecided) == len(memory.branches) == 1


def test_memory_keeps_branches_of_the_last_run() -> None:
    adapter, memory = simple(), Memory()
    adapter.change = lambda image, logits: logits * (2 if image.shape[2] > 8 else 1)
    memory.watch(adapter, 'traced', 'eager', IMAGE)
    first = memory.branches['traced']
    # That one branch with its answer.
    assert len(first.seen) == 1
    memory.watch(adapter, 'traced', 'noise 0', IMAGE)
    assert memory.branches == {'traced': first}
    memory.watch(adapter, 'traced', 'eager', IMAGE + 1)
    assert memory.branches['traced'] is not first
    memory.watch(adapter, 'traced', 'eager', IMAGE)
    assert memory.branches['traced'] is first


def test_memory_falls_back_if_recording_raises() -> None:
    adapter, memory = simple(), Memory()

    def raising_once(image: Tensor, logits: Tensor) -> Tensor:
        if len(adapter.runs) == 1:
            raise TypeError('first\nno such size')
        return logits + 1

    adapter.change = raising_once
    found, _ = memory.watch(adapter, 'traced', 'eager', IMAGE)
    assert torch.equal(found[0], torch.einsum('kc,nchw->nkhw', adapter.model.weight, IMAGE) + 1)
    assert memory.note == 'TypeError: no such size'
    assert len(adapter.runs) == 2
    memory.watch(adapter, 'tall', 'eager', IMAGE)
    assert len(adapter.runs) == 3
    assert memory.branches['tall'].seen == {}


def test_memory_falls_back_if_recording_changes_output() -> None:
    adapter, memory = simple(), Memory()
    adapter.change = lambda image, logits: logits + (1 if len(adapter.runs) == 1 else 0)
    found, _ = memory.watch(adapter, 'traced', 'eager', IMAGE)
    assert torch.equal(found[0], torch.einsum('kc,nchw->nkhw', adapter.model.weight, IMAGE))
    assert memory.note == 'the model answers otherwise while its branches are recorded'
    assert memory.branches['traced'].seen == {}


def test_memory_lets_model_errors_through() -> None:
    adapter = simple()
    adapter.change = lambda image, logits: logits.view(7)
    with pytest.raises(RuntimeError, match='invalid for input'):
        Memory().watch(adapter, 'traced', 'eager', IMAGE)


def test_memory_counts_close_comparisons_once() -> None:
    adapter, memory = simple(), Memory()
    adapter.change = lambda image, logits: logits * (torch.tensor([0.5, 0.500001, 0.7]) < 0.5).sum()
    assert memory.close_calls(adapter, 'traced', IMAGE) == 2
    count = len(adapter.runs)
    assert memory.close_calls(adapter, 'traced', IMAGE) == 2
    assert len(adapter.runs) == count


def test_memory_fixes_random_numbers() -> None:
    adapter = simple()
    adapter.change = lambda image, logits: logits + torch.rand(())
    one, other = (Memory().watch(adapter, 'traced', when, IMAGE)[0][0] for when in ('eager', 'noise 0'))
    assert torch.equal(one, other)


def test_new_memory_records_branches() -> None:
    assert Memory().note is None
