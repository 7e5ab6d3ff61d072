"""Test that forty faults and more, each found at its line; what is right is not found."""
from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mmexport import Exporter
from mmexport.adapters import build_adapter
from mmexport.device import Audit, audit_model, devices_fixed
from mmexport.device.preflight import audit_adapter, stop_where_it_would_fail
from mmexport.errors import DeviceError
from mmexport.inputs.synthetic import picture
from mmexport.model.build import build_model
from mmexport.model.config import load_config
from tests.detectors import tiny_detector
from tests.device.planted import CLEAN, CONFIG, FAULTS, PLACES, clean_source, marked_line, source
from tests.tiny import NAMES, SHAPE, seeded, tiny


def audited(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Audit, Path]:
    """Return the audit of a project with `code` as its module, imported as users import theirs."""
    name = f'own_{abs(hash(str(folder)))}'
    (folder / f'{name}.py').write_text(code)
    (folder / 'config.py').write_text(CONFIG.format(module=name))
    monkeypatch.syspath_prepend(folder)
    importlib.invalidate_caches()
    try:
        adapter = build_adapter(build_model(load_config(folder / 'config.py')))
        image = picture((1, 3, 64, 96), 0, adapter)
        return audit_model(adapter, lambda: adapter(image), 'cuda', (image,), adapter.model), folder / f'{name}.py'
    finally:
        sys.modules.pop(name, None)


@pytest.mark.parametrize('place', PLACES)
@pytest.mark.parametrize('fault', FAULTS)
def test_planted_fault_is_found_at_its_line(fault: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit, file = audited(tmp_path, source(place, fault), monkeypatch)
    assert len(audit.findings) == 1, '\n'.join(audit.lines())
    finding = audit.findings[0]
    assert finding.kind == FAULTS[fault][0]
    assert (finding.origin.file, finding.origin.line) == (str(file), marked_line(file)), str(finding.origin)
    assert finding.module == PLACES[place]
    assert finding.op
    assert finding.meets.file == str(file)
    assert finding.remedy


@pytest.mark.parametrize('place', PLACES)
@pytest.mark.parametrize('case', CLEAN)
def test_what_is_right_is_no_finding(case: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit, _ = audited(tmp_path, clean_source(place, CLEAN[case]), monkeypatch)
    assert audit.clean, '\n'.join(audit.lines())
    assert bool(audit.branches) == (case == 'asks is_cuda')


@pytest.mark.parametrize('name', NAMES)
def test_the_listed_configs_are_clean(name: str) -> None:
    adapter = build_adapter(seeded(name))
    image = picture(SHAPE, 0, adapter)
    with torch.no_grad():
        before = adapter(image)
    audit = audit_adapter(adapter, image, torch.device('cuda'))
    assert audit.clean, '\n'.join(audit.lines())
    assert audit.ops > 50
    with torch.no_grad():
        assert all(torch.equal(one, other) for one, other in zip(before, adapter(image), strict=True))


@pytest.mark.parametrize('name', ['retinanet', 'soft_nms', 'mask_rcnn', 'centernet'])
def test_final_outputs_of_detectors_are_clean(name: str) -> None:
    """A scripted loop is one call to the audit; its results were taken for tensors of the CPU, which stopped exports for CUDA."""
    adapter = build_adapter(build_model(tiny_detector(name)).eval())
    audit = audit_adapter(adapter, picture(SHAPE, 0, adapter), torch.device('cuda'))
    assert audit.clean, '\n'.join(audit.lines())


@pytest.mark.parametrize('fault', [fault for fault in FAULTS if fault != 'half'])
def test_fixed_is_clean_the_same_and_taken_back(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f'own_{abs(hash(str(tmp_path)))}'
    (tmp_path / f'{name}.py').write_text(source('own', fault))
    (tmp_path / 'config.py').write_text(CONFIG.format(module=name))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    adapter = build_adapter(build_model(load_config(tmp_path / 'config.py')), outputs='raw')
    image = picture((1, 3, 64, 96), 0, adapter)

    def audit() -> Audit:
        return audit_model(adapter, lambda: adapter(image), 'cuda', (image,), adapter.model)

    actual = audit()
    with torch.no_grad():
        expected = adapter(image)[0]
        with devices_fixed(adapter.model, actual, 'cpu') as done:
            assert torch.equal(adapter(image)[0], expected)
    assert len(done) == 1

    def run_fixed() -> None:
        with devices_fixed(adapter.model, actual, 'cuda:0'):
            adapter(image)

    after = audit_model(adapter, run_fixed, 'cuda', (image,), adapter.model)
    assert after.clean, '\n'.join(after.lines())
    assert len(audit().findings) == 1


@pytest.mark.parametrize('fault', ['parameter', 'attribute', 'global'])
def test_what_the_model_hides_can_still_be_exported(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor that asks for gradients and is no registered parameter cannot be traced."""
    name = f'own_{abs(hash(str(tmp_path)))}'
    (tmp_path / f'{name}.py').write_text(source('neck', fault).replace('torch.ones(1, 8, 1, 1)', 'torch.ones(1, 8, 1, 1).requires_grad_()'))
    (tmp_path / 'config.py').write_text(CONFIG.format(module=name))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    report, = Exporter.from_cfg(tmp_path / 'config.py', work_dir=tmp_path / 'out', checking=False).run()
    assert report.artifacts[0].file.is_file()


class Stubborn(nn.Module):
    """Keep a table in float32, and so keep it from moving."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(8))

    def _apply(self, fn: Callable[..., Tensor], recurse: bool = True) -> Stubborn:
        return self

    def forward(self, x: Tensor) -> Tensor:
        return x * self.table


def test_a_registered_tensor_that_apply_leaves_behind() -> None:
    model = nn.Sequential(nn.Linear(8, 8), Stubborn())
    image = torch.ones(2, 8)
    audit = audit_model(model, lambda: model(image), 'cuda', (image,))
    assert [(finding.kind, finding.module) for finding in audit.findings] == [('left behind', '1')]
    assert audit.findings[0].origin.file == __file__
    assert audit.findings[0].op == 'mul'


def test_misplaced_parts_are_reported_without_a_run() -> None:
    adapter = build_adapter(build_model(tiny('fcn')))
    adapter.model.decode_head.conv_seg.to('meta')  # type: ignore[union-attr,operator]
    audit = audit_adapter(adapter, picture(SHAPE, 0, adapter), torch.device('cpu'))
    assert [finding.what for finding in audit.findings] == [
        f'decode_head.conv_seg.{name} lies on meta, the model on cpu' for name in ('weight', 'bias')]
    with pytest.raises(DeviceError, match=r'conv_seg\.weight lies on meta'):
        stop_where_it_would_fail(audit, torch.device('cpu'), fix=True)
