"""Check which inputs that were made for a model are kept."""
from __future__ import annotations

import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from mmexport.inputs.decisive import Decisive
from mmexport.inputs.shapes import Plan
from mmexport.inputs.size_rules import SizeRules
from mmexport.utils.progress import Progress
from mmexport.verification import reference_maker
from mmexport.verification.expected import expect, jumps_beyond
from mmexport.verification.network_runs import NetworkRuns
from tests.simple import simple

MADE = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(5))
ORDINARY = torch.rand(1, 3, 24, 24, generator=torch.Generator().manual_seed(6))


def jumping(adapter: Any, where: Callable[[Tensor], bool]) -> Any:
    """Return `adapter`, whose logits are others for each picture for which `where` holds, however near they are."""
    def change(image: Tensor, logits: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(zlib.crc32(image.numpy().tobytes()))
        return torch.randn(logits.shape, generator=generator) if where(image) else logits
    adapter.change = change
    return adapter


def near(image: Tensor) -> bool:
    """Return whether it is `MADE`, perhaps with noise of 1e-6, and not another picture beside it."""
    return image.shape == MADE.shape and float((image - MADE).abs().max()) < 1e-4


@pytest.mark.parametrize(('where', 'kept', 'moved'), [
    (lambda image: False, True, False),
    (near, True, True),
    (lambda image: image.shape == MADE.shape, False, True),
    (lambda image: True, True, False)], ids=['calm', 'calm beside it', 'jumps', 'jumps as others do'])
def test_an_input_on_which_eager_jumps_is_not_added(where: Callable[[Tensor], bool], kept: bool, moved: bool,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """Its floor would excuse as much on every other input, and a right file fails there by what no floor excuses."""
    adapter = jumping(simple('final'), where)
    adapter.class_count, adapter.decided = 2, lambda raw, image: frozenset({0})
    samples = expect(adapter, {'traced': ORDINARY}, 1e-4, 1, NetworkRuns(), as_given=('traced',))
    monkeypatch.setattr(reference_maker, 'decisive_inputs', lambda *_: [Decisive(MADE, frozenset(), frozenset({1}), 1)])
    monkeypatch.setattr(reference_maker, 'picture', lambda *_: MADE)
    step = Progress()
    maker = reference_maker.ReferenceMaker(dict(verify=dict(noises=1), inputs=dict(dynamic=())), adapter, (1, 3, 24, 24),
                                           torch.device('cpu'), 1e-4, step)
    monkeypatch.setattr(reference_maker.ReferenceMaker, '_decides_clearly', lambda *_: True)
    found = maker._decisive(Plan({}, SizeRules()), samples)
    assert [sample.name for sample in found] == ['decisive 1'] * kept
    assert not kept or bool((found[0].image != MADE).any()) is moved
    notes = [note for note in step.notes if 'not used' in note]
    assert notes == ([] if kept else ['decisive 1: not used: noise of 1e-06 moves labels, logits of eager there more than on '
                                     'other inputs'])


def test_small_floors_are_no_jumps() -> None:
    calm, jumps = (SimpleNamespace(floors=floors) for floors in ({'labels': 0.005, 'logits': 0.3}, {'labels': 0.02, 'logits: lost': 0.2}))
    assert jumps_beyond(calm, []) == ['logits']  # type: ignore[arg-type]
    assert jumps_beyond(jumps, [calm]) == ['labels', 'logits']  # type: ignore[arg-type,list-item]
    assert jumps_beyond(calm, [SimpleNamespace(floors={'logits': 0.3})]) == []  # type: ignore[arg-type,list-item]
