from __future__ import annotations

from pathlib import Path

import pytest

from mmexport.errors import VerificationError
from tests.training import train


def test_hook_exports_and_checks_the_checkpoint_after_training(tmp_path: Path) -> None:
    """A real Runner; four iterations teach it enough that labels differ, or the report says vacuous."""
    train(tmp_path, hooks=[dict(type='mmexport.ExportHook')])
    place = next(tmp_path.glob('export/**/report.json'))
    import json
    report = json.loads(place.read_text())
    assert report['checkpoint'].endswith('iter_4.pth')
    rows = report['artifacts'][0]['found']['rows']
    assert rows
    assert all(row['passed'] for row in rows if row['stage'] == 'artifact vs eager')
    assert report['fit']['missing'] == []


def test_strict_hook_raises_where_nothing_is_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mmexport import hook
    monkeypatch.setattr(hook, 'best_checkpoint', lambda runner: Path(runner.work_dir) / 'absent.pth')
    from mmexport.errors import MMExportError
    with pytest.raises(MMExportError):
        train(tmp_path, hooks=[dict(type='mmexport.ExportHook', strict=True)])


def test_no_checkpoint_is_an_error(tmp_path: Path) -> None:
    from mmexport.hook import best_checkpoint
    runner = type('Runner', (), dict(hooks=[], work_dir=str(tmp_path)))()
    with pytest.raises(VerificationError, match='no checkpoint'):
        best_checkpoint(runner)
