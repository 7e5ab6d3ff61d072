"""Test that wrong files must not pass, and the report must say why."""
from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from mmexport.patches.multi_scale_deformable_attention import MultiScaleDeformableAttention
from torch import Tensor, nn
from torch.nn import functional as F

from mmexport.adapters import Adapter
from mmexport.artifact import Artifact
from mmexport.backends.torchscript.backend import TorchScript
from mmexport.checker.check import check, verdict
from mmexport.checker.main import main
from mmexport.cli.outcome import exit_code
from mmexport.export.exporter import Exporter
from mmexport.registry import BACKENDS
from mmexport.report.facts import Report
from mmexport.verification.reference import Reference
from tests.tiny import SHAPE, seeded, tiny

Outputs = tuple[Tensor, ...]
REFERENCES: dict[tuple[str, str], Reference | None] = {}


class Spoiled(nn.Module):
    """Wrap an adapter whose outputs, or whose model, were changed."""

    def __init__(self, adapter: Adapter, spoil: Callable[[Outputs, Tensor], Outputs]) -> None:
        super().__init__()
        self.adapter, self.spoil, self.model = adapter, spoil, adapter.model
        self.eval()

    def forward(self, image: Tensor) -> Outputs:
        return self.spoil(self.adapter(image), image)


def _constant(outputs: Outputs, image: Tensor) -> Outputs:
    return tuple(output * 0 + 0.1 for output in outputs)


def _baked(outputs: Outputs, image: Tensor) -> Outputs:
    return (*outputs[:-1], F.interpolate(outputs[-1], size=(SHAPE[2] // 4, SHAPE[3] // 4)))


def _nan(outputs: Outputs, image: Tensor) -> Outputs:
    # Only where the picture is not the traced one: a division by the difference from it.
    away = (torch.as_tensor(image.shape[2]) != SHAPE[2]).float()
    return (*outputs[:-1], outputs[-1] / (1 - away) * (1 - away))


def _late_channels(outputs: Outputs, image: Tensor) -> Outputs:
    order = torch.arange(outputs[-1].shape[1])
    order[[0, 1]] = order[[1, 0]]
    return (*outputs[:-1], outputs[-1][:, order])


# Whether eager has a floor above zero, and so which of the two rules a value breaks, is up to the processor's rounding.
OFF = r'of scale|beyond the tolerance'

FAULTS: dict[str, tuple[Any, str]] = {
    'constant output': (_constant, OFF),
    'a baked size': (_baked, 'baked into the graph'),
    'a lost output': (lambda outputs, image: outputs[1:], 'lost or added'),
    'swapped channels': (_late_channels, OFF),
    'a NaN': (_nan, 'NaN or inf'),
    'two outputs in the wrong order': (lambda outputs, image: outputs[::-1], 'instead of'),
}


@BACKENDS.register_module()
class Planted(TorchScript):
    """Lower to TorchScript with a fault from `FAULTS`, or with 1% on every weight."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def lower(self, adapter: Adapter, example: Tensor, folder: Path, manifest: dict[str, Any]) -> Artifact:
        if self.fault == 'weights off by 1%':
            adapter = copy.deepcopy(adapter)
            for parameter in adapter.parameters():
                parameter.data.mul_(1.01)
            return super().lower(adapter, example, folder, manifest)
        return super().lower(Spoiled(adapter, FAULTS[self.fault][0]), example, folder, manifest)  # type: ignore[arg-type]


def export(work_dir: Path, name: str = 'mask2former_r50', **section: Any) -> Report:
    """Export a small model, on shared eager runs."""
    cfg = tiny(name, **{'outputs': 'raw', **section})
    # What a diagnosis says of these is the business of tests/diagnosis.
    key = name, repr(section.get('verify'))
    exporter = Exporter(cfg, model=seeded(name), work_dir=work_dir, reference=REFERENCES.get(key), diagnose=False)
    report, = exporter.run()
    REFERENCES[key] = exporter.reference
    return report


def assert_caught(report: Report, words: str, work_dir: Path) -> None:
    assert exit_code(report, False) == 1
    assert re.search(words, ' '.join(report.reasons)), report.reasons
    assert not (work_dir / 'torchscript').exists()
    assert (work_dir / 'failed' / 'torchscript' / 'model.pt').is_file()


@pytest.mark.parametrize('fault', FAULTS)
def test_spoiled_output_is_caught(fault: str, tmp_path: Path) -> None:
    name = 'fcn' if fault == 'swapped channels' else 'mask2former_r50'
    report = export(tmp_path, name, backends=[dict(type='Planted', fault=fault)])
    assert_caught(report, FAULTS[fault][1], tmp_path)
    assert 'the patches are right' in ' '.join(report.reasons)


@pytest.mark.parametrize('name', ['mask2former_r50', 'fcn', 'segformer_b0'])
def test_weights_off_by_one_percent_are_caught(name: str, tmp_path: Path) -> None:
    assert_caught(export(tmp_path, name, backends=[dict(type='Planted', fault='weights off by 1%')]), OFF, tmp_path)


class Wrong(MultiScaleDeformableAttention):
    """Change the samples of the patch."""

    def __init__(self, change: Callable[..., Tensor]) -> None:
        super().__init__()
        right = self.sample
        self.sample = lambda *args: change(right, *args)


def _levels_swapped(right: Any, value: Tensor, shapes: Any, offsets: Tensor, weights: Tensor, reference: Tensor) -> Tensor:
    return right(value, shapes, offsets, weights.flip(3), reference)


def _off_by_one_in_a_hundred(right: Any, *args: Any) -> Tensor:
    return right(*args) * 1.01


def _zeros_under_a_tracer(right: Any, *args: Any) -> Tensor:
    """What mmcv's kernel does: it fills ``new_zeros`` in C++, which the tracer does not see."""
    answer = right(*args)
    return torch.zeros_like(answer) if torch.jit.is_tracing() else answer


@pytest.mark.parametrize(('change', 'words'), [
    (_levels_swapped, 'the fault is in a patch'), (_off_by_one_in_a_hundred, 'the fault is in a patch'),
    (_zeros_under_a_tracer, 'the fault is in the lowered file')])
def test_wrong_deformable_attention_is_caught_and_placed(change: Any, words: str, tmp_path: Path) -> None:
    report = export(tmp_path, patches=['auto', Wrong(change), 'PixelDecoderShapes'])
    assert_caught(report, words, tmp_path)


def test_unseeded_weights_are_vacuous_not_a_pass(tmp_path: Path) -> None:
    from mmexport.model.build import build_model
    cfg = tiny('fcn', outputs='raw')
    model = build_model(cfg)
    for parameter in model.decode_head.parameters():
        parameter.data.zero_()
    report, = Exporter(cfg, model=model, work_dir=tmp_path).run()
    assert exit_code(report, False) == 1
    assert 'vacuous' in ' '.join(report.reasons)
    assert 'mmexport checkpoint' in ' '.join(report.reasons)


def test_a_failed_artifact_never_replaces_a_good_one(tmp_path: Path) -> None:
    assert export(tmp_path).passed
    before = {path.name: path.read_bytes() for path in (tmp_path / 'torchscript').iterdir()}
    assert not export(tmp_path, backends=[dict(type='Planted', fault='constant output')]).passed
    assert {path.name: path.read_bytes() for path in (tmp_path / 'torchscript').iterdir()} == before


def test_stale_artifact_of_another_checkpoint_is_caught(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from mmexport.model.build import build_model
    from mmexport.seeding import seed_model
    assert export(tmp_path / 'one').passed
    other = build_model(tiny('mask2former_r50'))
    seed_model(other, seed=3)
    assert Exporter(tiny('mask2former_r50', outputs='raw'), model=other, work_dir=tmp_path / 'other').run()[0].passed
    folder = tmp_path / 'one' / 'torchscript'
    assert main([str(folder)]) == 0
    shutil.copy(tmp_path / 'other' / 'torchscript' / 'model.pt', folder / 'model.pt')
    assert main([str(folder)]) == 1
    assert 'not the file of this manifest' in capsys.readouterr().out
    # With its own manifest the file is whole, but its answers are another model's.
    shutil.copy(tmp_path / 'other' / 'torchscript' / 'manifest.json', folder / 'manifest.json')
    actual = check(folder, folder / 'samples.npz', torch.device('cpu'))
    assert 'samples.npz is not the file of this manifest' in str(verdict(actual))
    shutil.copy(folder / 'samples.npz', tmp_path / 'samples.npz')
    actual = check(folder, tmp_path / 'samples.npz', torch.device('cpu'))
    assert re.search(OFF, str(verdict(actual)))


def test_a_file_that_disagrees_with_test_step_is_not_delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mmexport.verification.test_step import PipelineCheck
    monkeypatch.setattr('mmexport.verification.reference_maker.check_sample',
                        lambda adapter, sample, *args: PipelineCheck(sample.name, 0.5, 'half of it'))
    report, = Exporter(tiny('segformer_b0'), model=seeded('segformer_b0'), work_dir=tmp_path).run()
    assert_caught(report, 'test_step on traced: half of it', tmp_path)


def test_a_failing_run_is_what_the_report_of_the_folder_says(tmp_path: Path) -> None:
    import json
    assert export(tmp_path, 'fcn').passed
    assert json.loads((tmp_path / 'report.json').read_text())['passed'] is True
    assert not export(tmp_path, 'fcn', backends=[dict(type='Planted', fault='constant output')]).passed
    assert json.loads((tmp_path / 'report.json').read_text())['passed'] is False
    assert json.loads((tmp_path / 'torchscript' / 'report.json').read_text())['passed'] is True


def test_the_reference_of_another_model_is_not_used(tmp_path: Path) -> None:
    from mmexport.model.build import build_model
    from mmexport.seeding import seed_model
    other = build_model(tiny('fcn'))
    seed_model(other, seed=3, size=SHAPE[2:])
    reference = None
    for number, model in enumerate((seeded('fcn'), other, other)):
        cfg = tiny('fcn', outputs='raw')
        exporter = Exporter(cfg, model=model, work_dir=tmp_path / str(number), reference=reference, diagnose=False)
        assert exporter.run()[0].passed
        assert (exporter.reference is reference) == (number == 2)
        reference = exporter.reference


def test_an_exporter_runs_again_on_changed_weights(tmp_path: Path) -> None:
    model = copy.deepcopy(seeded('fcn'))
    exporter = Exporter(tiny('fcn', outputs='raw'), model=model, work_dir=tmp_path, diagnose=False)
    assert exporter.run()[0].passed
    for parameter in model.parameters():
        parameter.data.mul_(1.02)
    assert exporter.run()[0].passed
