"""Check which model and options a reference belongs to, and how raw outputs are taken from one of decisions."""
from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from mmexport.checker.samples import Sample
from mmexport.inputs.shapes import Plan
from mmexport.inputs.size_rules import SizeRules
from mmexport.verification.reference import Reference, reference_key
from mmexport.verification.test_step import RAW_HOLDS_NONE, PipelineCheck
from tests.simple import IMAGE, Plain


def key(model: nn.Module, *options: Any) -> str:
    return reference_key(SimpleNamespace(model=model), *options)  # type: ignore[arg-type]


def with_weight(weight: Tensor, name: str = 'weight') -> nn.Module:
    model = nn.Module()
    model.register_buffer(name, weight)
    return model


def test_the_key_has_names_dtypes_and_shapes_of_weights() -> None:
    weight = torch.arange(6, dtype=torch.int32)
    keys = [key(with_weight(weight)), key(with_weight(weight, 'other')), key(with_weight(weight.view(2, 3))),
            key(with_weight(weight.view(torch.float32))), key(with_weight(weight + 1)), key(Plain(0)), key(Plain(1))]
    assert len(set(keys)) == len(keys)
    assert key(with_weight(weight)) == keys[0]
    # As they are read, not as they lie in memory.
    assert key(with_weight(weight.view(2, 3).T.contiguous().T)) == keys[2]


def test_the_key_has_the_options() -> None:
    model = Plain()
    assert key(model, dict(shape=(1, 3, 8, 8))) == key(model, dict(shape=(1, 3, 8, 8)))
    assert key(model, dict(shape=(1, 3, 8, 8))) != key(model, dict(shape=(1, 3, 8, 9)))


def adapter_of(level: str, *names: str) -> Any:
    return SimpleNamespace(outputs=level, specs=[SimpleNamespace(name=name) for name in names])


def reference() -> Reference:
    sample = Sample('traced', IMAGE, {'labels': torch.zeros(1, 8, 8)}, {'margin': torch.ones(1, 8, 8)}, floors={
        'labels': 0.1, 'logits': 0.2, 'logits: median': 0.3}, raw={'logits': torch.rand(1, 2, 8, 8)}, raw_evidence={'exempt': IMAGE})
    return Reference((sample,), Plan({}, SizeRules()), pipelines=(PipelineCheck('traced', 1.0),), key='k')


def test_raw_outputs_are_taken_from_a_reference_of_decisions() -> None:
    final = reference()
    assert final.at(adapter_of('final', 'labels')) is final
    raw = final.at(adapter_of('raw', 'logits'))
    sample, given = raw.samples[0], final.samples[0]
    assert sample.expected['logits'] is given.raw['logits'] and list(sample.expected) == ['logits']
    assert sample.floors == {'logits': 0.2, 'logits: median': 0.3}
    assert list(sample.evidence) == ['exempt'] and not sample.raw
    assert [row.skipped for row in raw.pipelines] == [RAW_HOLDS_NONE]
    assert raw.branches is final.branches


def test_what_a_raw_file_does_not_give_stays_behind_its_outputs() -> None:
    final = reference()
    chosen = torch.ones(1, 2, 3, dtype=torch.bool)
    final = replace(final, samples=(replace(final.samples[0], raw={**final.samples[0].raw, 'attention': chosen}),))
    sample = final.at(adapter_of('raw', 'logits')).samples[0]
    assert list(sample.expected) == ['logits'] and list(sample.raw) == ['attention']
    assert not sample.evidence and list(sample.raw_evidence) == ['exempt']


def test_a_reference_fits_its_own_key_and_levels() -> None:
    final = reference()
    assert final.fits('k', 'final') and final.fits('k', 'raw') and not final.fits('other', 'final')
    raw = final.at(adapter_of('raw', 'logits'))
    assert raw.fits('k', 'raw') and not raw.fits('k', 'final')
