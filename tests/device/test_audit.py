"""Forty faults and more, each found at its line; what is right is not found."""
from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch

from mmexport.adapters import build_adapter
from mmexport.config import load_config
from mmexport.device import Audit, audit_model, mended
from mmexport.inputs import picture
from mmexport.model import build_model
from mmexport.screening import audit_adapter
from tests.device.planted import CLEAN, CONFIG, FAULTS, PLACES, clean_source, marked_line, source
from tests.tiny import NAMES, SHAPE, seeded


def audited(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Audit, Path]:
    """The audit of a project with `code` as its module, imported as users import theirs."""
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


@pytest.mark.parametrize('fault', [fault for fault in FAULTS if fault != 'half'])
def test_mended_is_clean_the_same_and_taken_back(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f'own_{abs(hash(str(tmp_path)))}'
    (tmp_path / f'{name}.py').write_text(source('own', fault))
    (tmp_path / 'config.py').write_text(CONFIG.format(module=name))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    adapter = build_adapter(build_model(load_config(tmp_path / 'config.py')), outputs='raw')
    image = picture((1, 3, 64, 96), 0, adapter)

    def audit() -> Audit:
        return audit_model(adapter, lambda: adapter(image), 'cuda', (image,), adapter.model)

    found = audit()
    with torch.no_grad():
        wanted = adapter(image)[0]
        with mended(adapter.model, found, 'cpu') as done:
            assert torch.equal(adapter(image)[0], wanted)
    assert len(done) == 1

    def run_mended() -> None:
        with mended(adapter.model, found, 'cuda:0'):
            adapter(image)

    after = audit_model(adapter, run_mended, 'cuda', (image,), adapter.model)
    assert after.clean, '\n'.join(after.lines())
    assert len(audit().findings) == 1
