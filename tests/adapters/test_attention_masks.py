"""Test that attention masks of Mask2Former are recorded and followed, in mmdet's model and in mmseg's."""
from __future__ import annotations

import copy
import functools
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from mmexport import Exporter
from mmexport.adapters import Adapter, build_adapter
from mmexport.adapters.attention_masks import ATTENTION, LEAST_SCALE, attention_masks, scale_of
from mmexport.backends.torchscript.backend import TorchScript
from mmexport.checker.compare import compare
from mmexport.checker.kinds.attention import CELLS, DECIDING
from mmexport.inputs.synthetic import picture
from mmexport.report import Report
from mmexport.utils.override import override
from mmexport.verification.choices import choices_of
from mmexport.verification.expected import expect
from mmexport.verification.network_runs import NetworkRuns
from tests.tiny import seeded, tiny

MODELS = ('mask2former_r50', 'mask2former_r50_ade20k')


def adapter_of(name: str) -> tuple[Adapter, Tensor]:
    adapter = build_adapter(seeded(name))
    return adapter, picture((2, 3, 96, 128), 1, adapter)


@pytest.mark.parametrize('name', MODELS)
def test_masks_are_the_signs_of_the_logits_before_each_layer(name: str) -> None:
    adapter, image = adapter_of(name)
    assert adapter.choices == adapter.free_choices == (ATTENTION,)
    with torch.no_grad():
        (_, mask_logits, masks), evidence = adapter.run_with_evidence(image)
    deciding, cells = evidence[DECIDING], evidence[CELLS]
    assert masks.shape == deciding.shape and masks.shape[2] == int(cells.sum())
    sure = deciding.abs() > 1e-6
    assert float(deciding.abs().max()) <= 1 and torch.equal(masks[sure], deciding[sure] < 0)
    assert 0.05 < float(masks.float().mean()) < 0.95, 'some cells are attended to'


@pytest.mark.parametrize('name', MODELS)
def test_masks_are_followed_inside_the_block_alone(name: str) -> None:
    adapter, image = adapter_of(name)
    with torch.no_grad():
        own = adapter.raw(image)
        with adapter.following({ATTENTION: ~own[2]}):
            other = adapter.raw(image)
        with adapter.following({ATTENTION: own[2]}):
            same = adapter.raw(image)
        after = adapter.raw(image)
    assert torch.equal(other[2], ~own[2]) and float((other[0] - own[0]).abs().max()) > 0.1
    assert all(map(torch.equal, same, own)) and all(map(torch.equal, after, own))


def test_masks_are_those_before_the_head_writes_into_them() -> None:
    """In mmdet 3.0.0 the mask of a query that would attend to nothing is set to False, in place."""
    model = seeded('mask2former_r50')
    head = model.panoptic_head
    with torch.no_grad(), attention_masks(head, True, None) as masks:
        features = torch.randn(1, head.mask_embed[-1].out_features, 16, 20, generator=torch.Generator().manual_seed(0))
        given = head._forward_head(head.query_feat.weight[None], features, (4, 5))[2]
        own = given.view(1, head.num_heads, -1, 20)[:, 0].clone()
        given.logical_not_()
    assert torch.equal(masks.outputs()[0], own)


def test_other_heads_give_no_masks() -> None:
    assert build_adapter(seeded('maskformer_r50')).choices == ()
    model = copy.deepcopy(seeded('mask2former_r50'))

    class Own(type(model.panoptic_head)):  # type: ignore[misc]
        def _forward_head(self, *args: Any) -> Any:
            return super()._forward_head(*args)

    model.panoptic_head.__class__ = Own
    assert build_adapter(model).choices == (), 'what a head of the user does with the masks is not known'


def test_methods_put_on_the_head_or_wrapped_give_no_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = copy.deepcopy(seeded('mask2former_r50'))
    head = model.panoptic_head
    upstream = type(head)._forward_head

    @functools.wraps(upstream)
    def own(self: Any, *args: Any) -> Any:
        return upstream(self, *args)

    with override(head, '_forward_head', types.MethodType(own, head)):
        assert build_adapter(model).choices == ()
    assert build_adapter(model).choices == (ATTENTION,)
    monkeypatch.setattr(type(head), '_forward_head', own)
    assert build_adapter(model).choices == ()


def test_logits_are_measured_by_their_own_query() -> None:
    """Else one query with large logits makes all others unsure, and wrong masks of those are followed."""
    prediction = torch.full((2, 5, 3, 4), 1.0)
    prediction[0, 1] = -1e6
    prediction[1] = 1e-9
    prediction[0, 2] = 1e-3
    assert scale_of(prediction)[..., 0].tolist() == [[1, 1e6, 1, 1, 1], pytest.approx([LEAST_SCALE] * 5)]


def test_eager_attends_where_the_sigmoid_is_a_half() -> None:
    """In float32 that of -1e-8 is; upstream masks what is below a half."""
    model = copy.deepcopy(seeded('mask2former_r50'))
    last = model.panoptic_head.mask_embed[-1]
    with torch.no_grad():
        last.weight *= 1e-5
        last.bias *= 1e-5
    adapter = build_adapter(model)
    with torch.no_grad():
        (*_, masks), evidence = adapter.run_with_evidence(picture((1, 3, 96, 128), 1, adapter))
    row, = compare([dict(name=ATTENTION, dtype='bool', kind=ATTENTION)], {ATTENTION: masks}, [masks], evidence, sample='', stage='')
    assert row.passed, row.reason


@pytest.mark.parametrize('name', MODELS)
def test_a_file_with_raw_outputs_does_not_give_the_masks(name: str) -> None:
    adapter = build_adapter(seeded(name), outputs='raw')
    image = picture((2, 3, 96, 128), 1, adapter)
    assert [spec.name for spec in adapter.hidden_specs] == [ATTENTION] and len(adapter.specs) == 2
    with torch.no_grad():
        given = adapter(image)
        with adapter.with_raw() as specs:
            checked = adapter(image)
    assert len(given) == 2 and len(checked) == len(specs) == 3 and all(map(torch.equal, given, checked[:2]))


def test_noise_for_a_floor_lets_eager_choose_again() -> None:
    adapter, image = adapter_of('mask2former_r50')
    sample, = expect(adapter, {'one': image}, 1e-4, 0, NetworkRuns(), as_given=('one',))
    assert set(choices_of(adapter, sample)) == {ATTENTION} and choices_of(adapter, sample, free=False) == {}


def export_with_masks(folder: Path, monkeypatch: pytest.MonkeyPatch, shift: float) -> Report:
    """Export a file whose cells are masked below `shift` of the scale of their logits, where the model's are below 0."""
    lower = TorchScript.lower
    model = seeded('mask2former_r50')
    own = type(model.panoptic_head)._forward_head

    def moved(head: Any, decoder_out: Tensor, mask_feature: Tensor, size: Any) -> Any:
        cls_pred, mask_pred, _ = own(head, decoder_out, mask_feature, size)
        logits = F.interpolate(mask_pred, size, mode='bilinear', align_corners=False).flatten(2) / scale_of(mask_pred)
        return cls_pred, mask_pred, logits[:, None].repeat(1, head.num_heads, 1, 1).flatten(0, 1) < shift

    def spoiled(self: TorchScript, *args: Any) -> Any:
        with monkeypatch.context() as changed:
            changed.setattr(type(model.panoptic_head), '_forward_head', moved)
            return lower(self, *args)

    with monkeypatch.context() as changed:
        changed.setattr(TorchScript, 'lower', spoiled)
        cfg = tiny('mask2former_r50', backends=['torchscript'], verify=dict(noises=1))
        return Exporter(cfg, None, folder, model=model, diagnose=False).run()[0]


@pytest.mark.slow
@pytest.mark.parametrize(('shift', 'passes'), [(5e-5, True), (1e-2, False)])
def test_a_file_may_decide_cells_near_the_threshold_alone(shift: float, passes: bool, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    report = export_with_masks(tmp_path, monkeypatch, shift)
    assert report.passed is passes, report.reasons
    check, = report.checks
    assert not check.floors_count and all(row.floor == 0 for row in check.rows)
    assert bool(check.moved) is passes
    assert any(line.split()[1:2] == [ATTENTION] for line in report.lines(verbose=True))
    assert passes or any(not row.passed and row.output == ATTENTION for row in check.rows)
