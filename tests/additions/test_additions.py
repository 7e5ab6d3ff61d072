"""A task with a kind of output of its own, and a format, registered from outside the package: nothing of mmexport changes for them."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import tests.additions.gram
import tests.additions.plain_trace.backend  # noqa: F401
from mmexport import Exporter
from mmexport.checker.kinds import kind_of
from mmexport.report.facts import Report
from tests.tiny import seeded, tiny

HERE = Path(__file__).parent


def export(work_dir: Path, **section: object) -> Report:
    cfg = tiny('fcn', **section)
    return Exporter(cfg, model=seeded('fcn'), work_dir=work_dir, diagnose=False).run()


@pytest.mark.parametrize('backend', ['torchscript', 'plain_trace', 'onnx'])
def test_a_task_with_a_kind_of_its_own_is_exported_and_checked(backend: str, tmp_path: Path) -> None:
    report = export(tmp_path, task='Gram', backends=[backend])
    assert report.passed, report.reasons
    rows = report.checks[0].rows
    assert {(row.output, row.kind) for row in rows} == {('gram', 'likeness')}
    assert len(rows) > 4
    assert max(row.max_rel or 0.0 for row in rows) < 1e-4


def test_the_rule_of_that_kind_tells_a_wrong_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.additions.plain_trace.backend import PlainTrace
    lower = PlainTrace.lower

    def spoiled(self: PlainTrace, adapter: object, *args: object) -> object:
        raw = type(adapter).raw
        with monkeypatch.context() as changed:
            changed.setattr(type(adapter), 'raw', lambda self, image: (raw(self, image)[0] * 1.01,))
            return lower(self, adapter, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(PlainTrace, 'lower', spoiled)
    report = export(tmp_path, task='Gram', backends=['plain_trace'])
    assert report.passed is False
    assert 'off by 1.0e-02 of scale' in report.reasons[0]


def test_a_format_of_a_project_is_checked_from_its_folder(tmp_path: Path) -> None:
    report = export(tmp_path, backends=[dict(type='PlainTrace', scale=2.0)], outputs='raw')
    assert report.passed, report.reasons
    folder = tmp_path / 'plain_trace'
    assert json.loads((folder / 'manifest.json').read_text())['plain_trace'] == {'scale': 2.0}
    command = [sys.executable, str(HERE.parents[1] / 'tools' / 'verify.py'), str(folder)]
    unknown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert unknown.returncode == 2
    assert "no loader for backend 'plain_trace'" in unknown.stderr
    known = subprocess.run([*command, '--runner', str(HERE / 'plain_trace' / 'runner.py')], capture_output=True, text=True, check=False)
    assert known.returncode == 0, known.stdout + known.stderr


def test_a_kind_that_nobody_has_is_refused() -> None:
    with pytest.raises(ValueError, match="does not know outputs of kind 'colours'"):
        kind_of('colours')
