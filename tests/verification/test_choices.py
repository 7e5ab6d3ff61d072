"""Test that eager follows a file's choice where scores tie, and that a file that chooses wrongly fails."""
from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmexport import Exporter
from mmexport.adapters import build_adapter
from mmexport.adapters.detection.selection import PLACES
from mmexport.backends.torchscript.backend import TorchScript
from mmexport.checker.kinds.distinct import ROW
from mmexport.checker.samples import read_samples
from mmexport.inputs.synthetic import picture
from mmexport.model.build import build_model
from mmexport.ops import distinct
from mmexport.ops.ranking import ranked
from mmexport.report import Report
from mmexport.verification.choices import choices_of
from tests.detectors import seeded_detector, tiny_detector

# One worker runs them: they share a seeded model.
pytestmark = pytest.mark.xdist_group('dino')
QUERIES = 100


def with_ties(name: str = 'dino') -> nn.Module:
    """Return a detector whose places have one score."""
    model = copy.deepcopy(seeded_detector(name))
    model.bbox_head.cls_branches[model.decoder.num_layers].weight.data.zero_()
    return model


def export_in_reverse(model: nn.Module, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    """Export a file that takes the best places in ascending order of their scores."""
    lower, topk = TorchScript.lower, torch.topk

    def ascending(scores: Tensor, k: int, **options: Any) -> tuple[Tensor, Tensor]:
        values, places = topk(scores, k, **options)
        return (values.flip(1), places.flip(1)) if k == QUERIES else (values, places)

    def spoiled(self: TorchScript, *args: Any) -> Any:
        with monkeypatch.context() as changed:
            changed.setattr(torch, 'topk', ascending)
            return lower(self, *args)

    with monkeypatch.context() as changed:
        changed.setattr(TorchScript, 'lower', spoiled)
        cfg = tiny_detector('dino', backends=['torchscript'], inputs=dict(shape=(1, 3, 64, 96), dynamic=()), verify=dict(noises=1))
        return Exporter(cfg, None, folder, model=model, diagnose=False).run()[0]


@pytest.mark.slow
def test_eager_takes_the_places_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = export_in_reverse(with_ties(), tmp_path, monkeypatch)
    assert report.passed, report.reasons
    check, = report.checks
    assert check.moved and max(check.moved.values()) >= QUERIES - 1
    assert any('of its choices (of queries' in line for line in report.lines())
    samples, _ = read_samples(report.artifacts[0].folder / 'samples.npz')
    kept = {sample.name: sample for sample in samples}
    for name, followed in check.followed.items():
        assert torch.equal(kept[name].expected['boxes'], followed.expected['boxes']), 'what eager gave with the places of the file'


@pytest.mark.slow
def test_a_file_that_chooses_by_another_order_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = export_in_reverse(seeded_detector('dino'), tmp_path, monkeypatch)
    assert report.passed is False
    assert any(not row.passed and row.output == PLACES for row in report.checks[0].rows)
    assert not report.checks[0].moved, 'a wrong choice is not followed'


@pytest.mark.slow
@pytest.mark.parametrize('tied', [True, False])
def test_distinct_queries_of_a_file_are_followed_where_they_tie(tied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of places with one score the file of a DDQ keeps the last ones; where scores differ, neighbours that change ranks are wrong."""
    lower = TorchScript.lower

    def from_the_last(scores: Tensor) -> Tensor:
        return scores.shape[1] - 1 - ranked(scores.flip(1)) if tied else ranked(scores).unflatten(1, (-1, 2)).flip(2).flatten(1)

    def spoiled(self: TorchScript, *args: Any) -> Any:
        with monkeypatch.context() as changed:
            changed.setattr(distinct, 'ranked', from_the_last)
            return lower(self, *args)

    monkeypatch.setattr(TorchScript, 'lower', spoiled)
    cfg = tiny_detector('ddq', backends=['torchscript'], inputs=dict(shape=(1, 3, 64, 96), dynamic=()), verify=dict(noises=1))
    model = with_ties('ddq') if tied else seeded_detector('ddq')
    report = Exporter(cfg, None, tmp_path, model=model, diagnose=False).run()[0]
    assert report.passed is tied, report.reasons
    assert bool(report.checks[0].moved) is tied
    assert tied or any(not row.passed and row.output == ROW for row in report.checks[0].rows)


def test_a_choice_is_followed_inside_the_block_alone() -> None:
    adapter = build_adapter(seeded_detector('dino'), outputs='raw')
    image = picture((1, 3, 128, 160), 1, adapter)
    assert adapter.choices == (PLACES,)
    with torch.no_grad():
        own = adapter.raw(image)
        with adapter.following({PLACES: own[2].flip(1)}):
            followed = adapter.raw(image)
        after = adapter.raw(image)
    assert torch.equal(followed[2], own[2].flip(1)) and float((followed[0] - own[0]).abs().max()) > 0.1
    assert all(map(torch.equal, after, own))


def test_models_without_a_choice_have_none() -> None:
    adapter = build_adapter(build_model(tiny_detector('deformable_detr')))
    assert adapter.choices == () and choices_of(adapter, _sample()) == {}


def _sample() -> Any:
    from mmexport.checker.samples import Sample
    return Sample('one', torch.zeros(1, 3, 4, 4), {'boxes': torch.zeros(1)})
