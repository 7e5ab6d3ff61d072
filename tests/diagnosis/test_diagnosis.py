"""Test that each planted fault is found at its module, at its line where the exporter lets it be known, and is named."""
from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from mmexport import Exporter
from mmexport.model.build import build_model
from mmexport.model.config import load_config
from tests.diagnosis.planted import CONFIG, FAULTS, diagnosed
from tests.programs import needs_program
from tests.tiny import seeded, tiny


@pytest.mark.parametrize('name', FAULTS)
def test_a_planted_fault_is_found_at_its_module_and_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[name]
    actual, source = diagnosed(fault, tmp_path, monkeypatch, f'diagnosed_{list(FAULTS).index(name)}')
    assert len(actual) == 1
    row = actual[0]
    assert (row.module, row.stage, row.cause) == (fault.module, fault.stage, fault.cause), '\n'.join(row.lines())
    assert row.remedy
    assert row.repro or fault.cause == 'in-place on the input'
    assert row.file == str(source)
    if fault.marked:
        assert row.line == fault.line(source), '\n'.join(row.lines())


def test_a_healthy_model_says_so(tmp_path: Path) -> None:
    exporter = Exporter(tiny('fcn', outputs='raw'), model=seeded('fcn'), work_dir=tmp_path)
    report, = exporter.run()
    assert report.passed
    assert report.diagnoses == ()


@needs_program
def test_without_diagnosis_the_failure_stands_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = FAULTS['a branch on a sum in a head']
    source.write(tmp_path / 'undiagnosed.py')
    (tmp_path / 'config.py').write_text(CONFIG.format(module='undiagnosed'))
    monkeypatch.syspath_prepend(str(tmp_path))
    cfg = load_config(tmp_path / 'config.py')
    cfg.export.backends = ['torch_export']
    report, = Exporter(cfg, work_dir=tmp_path / 'work', diagnose=False).run()
    assert report.diagnoses == ()
    (left,) = (tmp_path / 'work' / 'failed').iterdir()
    kept = json.loads(left.read_text())
    assert (left.name, kept['passed'], list(kept['failures'])) == ('report.json', False, ['torch_export'])


@needs_program
def test_the_door(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from mmexport.cli.main import run
    from mmexport.seeding import seed_model
    source = tmp_path / 'diagnosed_door.py'
    FAULTS['a branch on a sum in a head'].write(source)
    (tmp_path / 'config.py').write_text(CONFIG.format(module='diagnosed_door'))
    sys.path.insert(0, str(tmp_path))
    try:
        model = build_model(load_config(tmp_path / 'config.py'))
        seed_model(model, size=(64, 96))
        torch.save({'state_dict': model.state_dict()}, tmp_path / 'c.pth')
        common = [str(tmp_path / 'config.py'), str(tmp_path / 'c.pth'), '--work-dir', str(tmp_path / 'w')]
        assert run(['diagnose', *common, '--backend', 'torch_export', '--json', str(tmp_path / 'found.json')]) == 1
        messages = capsys.readouterr().out
        assert 'decode_head (OwnHead)' in messages
        assert 'data-dependent Python' in messages
        assert (tmp_path / 'w' / 'failed' / 'repro_torch_export.py').is_file()
        assert json.loads((tmp_path / 'found.json').read_text())[0]['module'] == 'decode_head'
        assert run(['diagnose', *common, '--backend', 'torchscript']) == 0
        assert 'nothing is wrong' in capsys.readouterr().out
    finally:
        sys.path.remove(str(tmp_path))
