"""Each planted fault is found at its module, at its line where the exporter lets it be known, and is named."""
from __future__ import annotations

from pathlib import Path

import pytest

from mmexport import Exporter
from mmexport.config import load_config
from mmexport.diagnosis import Diagnosis
from mmexport.errors import LoweringError
from tests.diagnosis.planted import CONFIG, FAULTS, Fault


def diagnosed(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> tuple[list[Diagnosis], Path]:
    source = tmp_path / f'{name}.py'
    fault.write(source)
    config = tmp_path / 'config.py'
    config.write_text(CONFIG.format(module=name))
    monkeypatch.syspath_prepend(str(tmp_path))
    cfg = load_config(config)
    cfg.export.backends = [fault.backend]
    exporter = Exporter(cfg, work_dir=tmp_path / 'work')
    try:
        report = exporter.run()
        assert report.passed is False
        assert report.as_dict()['diagnoses']
    except LoweringError as exc:
        assert 'diagnosis of' in str(exc)
    return exporter.consultation.found, source


@pytest.mark.parametrize('name', FAULTS)
def test_a_planted_fault_is_found_at_its_module_and_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = FAULTS[name]
    found, source = diagnosed(fault, tmp_path, monkeypatch, f'diagnosed_{list(FAULTS).index(name)}')
    assert len(found) == 1
    row = found[0]
    assert (row.module, row.stage, row.cause) == (fault.module, fault.stage, fault.cause), '\n'.join(row.lines())
    assert row.remedy
    assert row.file == str(source)
    if fault.marked:
        assert row.line == fault.line(source), '\n'.join(row.lines())
