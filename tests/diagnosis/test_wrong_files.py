"""Check the diagnosis of files that the lowering, or a patch, got wrong."""
from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from mmexport import Exporter
from mmexport.adapters import Adapter
from mmexport.artifact import Artifact
from mmexport.backends import Backend
from mmexport.backends.onnx.backend import ONNX
from mmexport.backends.torchscript.backend import TorchScript
from mmexport.patching import Patch
from mmexport.registry import BACKENDS, PATCHES
from tests.diagnosis.planted import Fault, diagnosed
from tests.tiny import seeded, tiny


class Spoiled(Backend):
    """Lower one module wrong: `spoil` changes it in a copy of the model."""

    def __init__(self, spoil: str) -> None:
        super().__init__()
        self.spoil = SPOILS[spoil]

    def lower(self, adapter: Adapter, example: Tensor, folder: Path, manifest: dict[str, Any]) -> Artifact:
        adapter = copy.deepcopy(adapter)
        self.spoil(adapter.model)
        return super().lower(adapter, example, folder, manifest)


@BACKENDS.register_module()
class Mistaken(Spoiled, TorchScript):
    pass


@BACKENDS.register_module()
class MistakenONNX(Spoiled, ONNX):
    pass


def _one_percent(model: Any) -> None:
    model.backbone.layer2[0].conv1.weight.data.mul_(1.01)


def _deepest_constant(model: Any) -> None:
    model.panoptic_head.transformer_decoder.layers[-1].norms[-1].bias.data[3] += 0.2


def _second_call(model: Any) -> None:
    """The head's prediction branch is called once for each decoder layer; it is wrong from the second call on."""
    layer, calls = model.panoptic_head.mask_embed[0], [0]
    right = type(layer).forward

    def forward(x: Tensor) -> Tensor:
        calls[0] += 1
        return right(layer, x) * (1.0 if calls[0] == 1 else 1.05)
    layer.forward = forward


SPOILS: dict[str, Any] = {'a layer 1% off': _one_percent, 'a wrong constant in the deepest decoder layer': _deepest_constant,
                          'a module wrong on its second call': _second_call}


@pytest.mark.parametrize(('backend', 'spoil', 'name', 'module'), [
    ('Mistaken', 'a layer 1% off', 'fcn', 'backbone.layer2.0.conv1'),
    ('MistakenONNX', 'a layer 1% off', 'fcn', 'backbone.layer2.0.conv1'),
    ('Mistaken', 'a wrong constant in the deepest decoder layer', 'mask2former_r50', 'panoptic_head.transformer_decoder.layers.5.norms.2'),
    ('Mistaken', 'a module wrong on its second call', 'mask2former_r50', 'panoptic_head.mask_embed.0, call 2')])
def test_what_the_lowering_got_wrong_is_found(backend: str, spoil: str, name: str, module: str, tmp_path: Path) -> None:
    exporter = Exporter(tiny(name, outputs='raw', backends=[dict(type=backend, spoil=spoil)]), model=seeded(name), work_dir=tmp_path)
    report, = exporter.run()
    assert not report.passed
    row, = report.diagnoses
    assert (row.stage, row.module) == ('file', module), '\n'.join(row.lines())
    assert row.cause == 'the conversion'


@PATCHES.register_module()
class LosesItsCast(Patch):
    """Do what a careless patch does: the sum that its author took in double is taken of bfloat16."""

    targets = ('diagnosed_cast.Own.forward',)
    upstream = 'this test'

    def replacement(self, target: str, original: Any) -> Any:
        return lambda module, x: module.mix(x.bfloat16().float().cumsum(3))


def test_a_lost_cast_in_a_patch_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Fault('torchscript', 'own', 'x = x.double().cumsum(3).float()', 'neck.own', 'a patch', 'patched')
    actual, _ = diagnosed(fault, tmp_path, monkeypatch, 'diagnosed_cast', patches=['auto', 'LosesItsCast'])
    assert [(row.stage, row.module, row.cause) for row in actual] == [('patched', 'neck.own', 'a patch')]


def test_a_cast_that_the_lowering_lost_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(model: Any) -> None:
        own = model.neck.own
        own.forward = lambda x: own.mix(x.bfloat16().float().cumsum(3))

    monkeypatch.setitem(SPOILS, 'a lost cast', half)
    fault = Fault('torchscript', 'own', 'x = x.double().cumsum(3).float()', 'neck.own', 'the conversion', 'file')
    actual, _ = diagnosed(fault, tmp_path, monkeypatch, 'diagnosed_lost', backends=[dict(type='Mistaken', spoil='a lost cast')])
    assert [(row.stage, row.module, row.cause) for row in actual] == [(fault.stage, fault.module, fault.cause)]


def test_a_diagnosis_that_fails_costs_nothing_but_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*args: Any, **kwargs: Any) -> Any:
        raise KeyError('a mistake')

    monkeypatch.setattr('mmexport.diagnosis.session.why_wrong', breaks)
    exporter = Exporter(tiny('fcn', outputs='raw', backends=[dict(type='Mistaken', spoil='a layer 1% off')]), model=seeded('fcn'),
                        work_dir=tmp_path)
    report, = exporter.run()
    assert report.passed is False
    assert 'of scale' in ' '.join(report.reasons)
    assert 'it failed itself' in '\n'.join(report.lines())
    assert (tmp_path / 'failed' / 'torchscript' / 'model.pt').is_file()
