"""Test weights that a model lacks: which are needed, counted and named."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from mmexport.errors import CheckpointError
from mmexport.model.checkpoint import load_into, read_state_dict
from tests.model.checkpoint.conftest import save


def test_missing_keys_are_counted_and_named(tmp_path: Path, model: nn.Module) -> None:
    weights = dict(model.state_dict())
    del weights['0.weight']
    weights['2.weight'] = torch.zeros(5, 5)
    weights['stray'] = torch.zeros(1)
    state = read_state_dict(save(tmp_path / 'c.pth', weights))
    with pytest.raises(CheckpointError, match=r'6 of 8 keys.*1 missing, 1 of another shape, 1 unexpected.*0\.weight'):
        load_into(model, state, 'c.pth')
    other = read_state_dict(save(tmp_path / 'other.pth', {'stray': torch.zeros(1)}))
    with pytest.raises(CheckpointError, match=r'0 of 8 keys.*Nothing of it can be loaded'):
        load_into(model, other, 'other.pth')
    report = load_into(model, state, 'c.pth', allow_partial=True)
    assert report.missing == ('0.weight',)
    assert report.unexpected == ('stray',)
    assert '(5, 5) in the file' in report.misshaped[0]


class Segmentor(nn.Module):
    """Build it as deep networks are: the classifier is two keys of hundreds."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.backbone = nn.Sequential(*(nn.Conv2d(1, 1, 1) for _ in range(200)))
        self.backbone.register_buffer('relative_position_index', torch.arange(4))
        self.norm = nn.BatchNorm2d(1)
        self.decode_head, self.auxiliary_head = nn.Conv2d(1, classes, 1), nn.Conv2d(1, classes, 1)


@pytest.mark.parametrize(('dropped', 'classes', 'words'), [
    ((), 19, None), (('auxiliary_head.weight', 'backbone.relative_position_index'), 19, None),
    (('decode_head.bias',), 19, 'decode_head.bias'),
    (('norm.running_var',), 19, 'norm.running_var'), ((), 150, r'4 of another shape.*First: decode_head.bias: \(150,\) in the file')])
def test_a_classifier_of_another_dataset_is_refused(tmp_path: Path, dropped: tuple[str, ...], classes: int, words: str | None) -> None:
    weights = {key: value for key, value in Segmentor(classes).state_dict().items() if key not in dropped}
    state = read_state_dict(save(tmp_path / 'c.pth', weights))
    if words is None:
        assert load_into(Segmentor(19), state, 'c.pth').missing == tuple(sorted(dropped))
        return
    with pytest.raises(CheckpointError, match=words):
        load_into(Segmentor(19), state, 'c.pth')
    assert load_into(Segmentor(19), state, 'c.pth', allow_partial=True).expected > 400


class Gauge(nn.Module):
    """Hold a buffer that training fills, one that is learned and starts at random, and a table that the model works out."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.layers = nn.Sequential(*(nn.Conv2d(1, 1, 1) for _ in range(100)))
        self.register_buffer('mean', torch.zeros(4))
        self.register_buffer('prototypes', torch.randn(4, 2))
        self.register_buffer('table', torch.arange(8.0))


@pytest.mark.parametrize(('lost', 'refused'), [('mean', True), ('prototypes', True), ('table', False), ('weight', True)])
def test_a_learned_buffer_is_needed_and_a_table_is_not(lost: str, refused: bool, tmp_path: Path) -> None:
    model = Gauge()
    torch.save({key: value for key, value in model.state_dict().items() if key != lost}, tmp_path / 'w.pth')
    state = read_state_dict(tmp_path / 'w.pth')
    if not refused:
        assert load_into(Gauge(), state, 'w.pth', rebuild=Gauge).missing == (lost,)
        return
    with pytest.raises(CheckpointError, match=lost):
        load_into(Gauge(), state, 'w.pth', rebuild=Gauge)
    assert load_into(Gauge(), state, 'w.pth', allow_partial=True, rebuild=Gauge).missing == (lost,)
