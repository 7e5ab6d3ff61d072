"""Test probes: the installed runtimes get the ops right, and a runtime that does not is given the other form."""
from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmexport.adapters.specs import IMAGE, InputSpec
from mmexport.backends import build_backend
from mmexport.backends.exported.probing import choose_form
from mmexport.backends.onnx.backend import ONNX
from mmexport.errors import LoweringError
from mmexport.ops.deformable_attention.probe import AttentionProbe
from mmexport.ops.deformable_conv.probe import ConvProbe
from mmexport.ops.op import Op, registered, with_forms

PROBED = [op for op in registered() if op.probe is not None]
ATTENTION = next(op for op in PROBED if op.name == 'deformable_attention')


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, 'tempdir', str(tmp_path))


def test_its_places_are_inside_at_the_border_and_outside() -> None:
    image = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    answers = []
    for form in ('bag', 'grid', 'gather'):
        with with_forms(deformable_attention=form):
            answers.append(AttentionProbe()(image)[0])
    assert answers[0].shape == (3, 64, 6)
    for other in answers[1:]:
        assert float((answers[0] - other).abs().max()) < 1e-5
    zeros = (answers[0].abs().amax(-1) == 0).float().mean()
    assert float(zeros) < 0.5
    assert float(answers[0].std()) > 0.1


def test_those_of_the_convolution_too() -> None:
    image = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    answers = []
    for form in ('grid', 'gather'):
        with with_forms(deformable_conv=form):
            answers.append(ConvProbe()(image)[0])
    assert answers[0].shape == (3, 6, 8, 8)
    assert float((answers[0] - answers[1]).abs().max()) < 1e-4
    assert float(answers[0].std()) > 0.1


@pytest.mark.parametrize('op', PROBED, ids=lambda op: op.name)
@pytest.mark.parametrize('name', ['onnx', 'openvino'])
def test_the_installed_runtime_is_right_and_is_asked_once(name: str, op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    backend: Any = build_backend(name)
    form, tried = choose_form(backend, torch.device('cpu'), op)
    assert tried == {**dict.fromkeys(op.probed[:op.probed.index(form)], False), form: True}
    # ONNX Runtime up to 1.26 gets the operator of layer normalization wrong.
    assert form == op.probed[0] or op.name == 'layer_norm'
    monkeypatch.setattr('mmexport.backends.exported.probing._right', lambda *args: pytest.fail('asked again'))
    assert choose_form(backend, torch.device('cpu'), op) == (form, tried)


class BoxProbe(nn.Module):
    """Apply an op that takes boxes (N, 4) beside the picture."""

    input_specs = (IMAGE, InputSpec('boxes', ('batch', 'side')))

    def inputs_of(self, picture: Tensor) -> tuple[Tensor, ...]:
        return picture, picture.flatten(1)[:, :4].abs()

    def forward(self, picture: Tensor, boxes: Tensor) -> tuple[Tensor, ...]:
        return ((picture.mean(dim=(1, 2, 3))[:, None] + boxes),)


def test_a_probe_with_two_inputs_of_other_ranks() -> None:
    op = Op('boxed', 'plain', probed=('plain',), probe=BoxProbe, axes=('batch', 'side'))
    assert choose_form(ONNX(), torch.device('cpu'), op) == ('plain', {'plain': True})


class GetsGridWrong(ONNX):
    """Be right at batch 1 and wrong at batch 3, for every form in `wrong`."""

    wrong: tuple[str, ...] = ('grid',)

    def load(self, artifact: Any, device: Any) -> Any:
        run, form = super().load(artifact, device), self.forms['deformable_attention']
        return lambda image: tuple(out * (1.1 if form in self.wrong and len(image) > 1 else 1.0) for out in run(image))


def test_a_runtime_that_gets_one_form_wrong_gets_the_other() -> None:
    assert choose_form(GetsGridWrong(), torch.device('cpu'), ATTENTION) == ('gather', {'grid': False, 'gather': True})


def test_a_runtime_that_gets_none_right_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GetsGridWrong, 'wrong', ('grid', 'gather'))
    with pytest.raises(LoweringError, match='gets no form of deformable attention right .grid: wrong; gather: wrong.'):
        choose_form(GetsGridWrong(), torch.device('cpu'), ATTENTION)


def test_fewer_bits_are_no_fault_of_the_form() -> None:
    assert choose_form(ONNX(precision='fp16', simplify=True), torch.device('cpu'), ATTENTION) == ('grid', {'grid': True})
    assert choose_form(ONNX(), torch.device('cpu'), ATTENTION) == ('grid', {'grid': True})


def test_the_old_exporter_is_asked_for_itself() -> None:
    assert choose_form(ONNX(dynamo=False), torch.device('cpu'), ATTENTION) == ('grid', {'grid': True})
    assert len(json.loads(next(Path(tempfile.gettempdir()).glob('mmexport-probes-*.json')).read_text())) == 1
    choose_form(ONNX(), torch.device('cpu'), ATTENTION)
    assert len(json.loads(next(Path(tempfile.gettempdir()).glob('mmexport-probes-*.json')).read_text())) == 2


def test_what_went_wrong_on_the_way_is_told_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as full:
        full.setattr('mmexport.backends.onnx.backend.ONNX.write', lambda *args: (_ for _ in ()).throw(OSError('no space left on device')))
        with pytest.raises(LoweringError, match='no space left on device'):
            choose_form(ONNX(), torch.device('cpu'), ATTENTION)
    assert choose_form(ONNX(), torch.device('cpu'), ATTENTION) == ('grid', {'grid': True})
