"""Test that a model whose head cannot be lowered leaves its backbone and neck; a healthy one all of itself."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from mmexport.cli.main import run
from mmexport.export.progressive import PartResults, steps
from mmexport.verification.test_step import PipelineCheck
from tests.device.planted import CONFIG, clean_source
from tests.tiny import seeded, tiny

BRANCH = 'if x.abs().sum() > 0:\n            x = x * 2'


def _project(folder: Path, module: str, place: str, forward: str) -> list[str]:
    (folder / f'{module}.py').write_text(clean_source(place, forward))
    (folder / 'config.py').write_text(CONFIG.format(module=module) if '{{' in CONFIG else CONFIG.replace('{module}', module))
    return [str(folder / 'config.py'), str(folder / 'c.pth'), '--work-dir', str(folder / 'w'), '--outputs', 'raw', '--progressive',
            '--backend', 'torch_export', '--no-diagnose', '--shape', '64', '96']


@pytest.mark.parametrize(('place', 'kept', 'stopped'), [('head', 'backbone+neck', 'all'), ('neck', 'backbone', 'backbone+neck'),
                                                        ('own', 'backbone', 'backbone+neck')])
def test_the_largest_part_that_is_right_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                                place: str, kept: str, stopped: str) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    command = _project(tmp_path, f'progressive_{place}', place, BRANCH)
    assert run(['checkpoint', *command[:2]]) == 0
    assert run(['export', *command]) == 1
    assert f'torch_export: {kept} passes, {stopped} does not' in capsys.readouterr().out
    manifest = json.loads((tmp_path / 'w' / 'parts' / 'torch_export' / 'manifest.json').read_text())
    assert manifest['part'] == kept
    assert manifest['verified'] is True
    assert [output['name'] for output in manifest['outputs']] == ['feature_0']


def test_a_part_that_is_wrong_replaces_no_smaller_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                      capsys: pytest.CaptureFixture[str]) -> None:
    """A size that the trace bakes in: the file is made, and is wrong at another size."""
    monkeypatch.syspath_prepend(tmp_path)
    command = _project(tmp_path, 'progressive_baked', 'head', 'x = x * float(x.shape[2])')
    command[command.index('torch_export')] = 'torchscript'
    assert run(['checkpoint', *command[:2]]) == 0
    assert run(['export', *command]) == 1
    assert 'torchscript: backbone+neck passes, all does not' in capsys.readouterr().out
    assert json.loads((tmp_path / 'w' / 'parts' / 'torchscript' / 'manifest.json').read_text())['part'] == 'backbone+neck'
    assert not (tmp_path / 'w' / 'torchscript').exists()
    assert 'part' not in json.loads((tmp_path / 'w' / 'failed' / 'torchscript' / 'manifest.json').read_text())


def test_a_model_that_disagrees_with_test_step_is_not_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, photograph_file: Path) -> None:
    monkeypatch.setattr('mmexport.verification.reference_maker.check_sample',
                        lambda adapter, sample, *args: PipelineCheck(sample.name, 0.5, 'half of it'))
    results = PartResults()
    cfg = tiny('fcn', inputs=dict(image=str(photograph_file)))
    list(steps(results, cfg, None, tmp_path, model=seeded('fcn'), diagnose=False))
    assert not results.passed
    assert results.lines() == ['torchscript: backbone passes, all does not']


def test_a_passing_model_is_published_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    command = _project(tmp_path, 'progressive_healthy', 'head', 'pass')
    command.insert(command.index('torch_export'), 'torchscript')
    assert run(['checkpoint', *command[:2]]) == 0
    assert run(['export', *command]) == 0
    message = capsys.readouterr().out
    for name in ('torchscript', 'torch_export'):
        assert f'{name}: all of it passes' in message
        assert 'part' not in json.loads((tmp_path / 'w' / name / 'manifest.json').read_text())
