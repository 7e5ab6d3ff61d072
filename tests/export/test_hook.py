from __future__ import annotations

from pathlib import Path

import pytest

from mmexport.errors import VerificationError
from tests.training import config, train


def test_hook_exports_and_checks_the_checkpoint_after_training(tmp_path: Path) -> None:
    """A real Runner; four iterations teach it enough that labels differ, or the report says vacuous."""
    train(tmp_path, hooks=[dict(type='mmexport.ExportHook')])
    place = next(tmp_path.glob('export/**/report.json'))
    import json
    report = json.loads(place.read_text())
    assert report['checkpoint'].endswith('iter_4.pth')
    rows = report['artifacts'][0]['result']['rows']
    assert rows
    assert all(row['passed'] for row in rows if row['stage'] == 'artifact vs eager')
    assert report['fit']['missing'] == []


def test_strict_hook_raises_where_nothing_is_proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mmexport.export import hook
    monkeypatch.setattr(hook, 'best_checkpoint', lambda runner: Path(runner.work_dir) / 'absent.pth')
    from mmexport.errors import MMExportError
    with pytest.raises(MMExportError):
        train(tmp_path, hooks=[dict(type='mmexport.ExportHook', strict=True)])


def test_no_checkpoint_is_an_error(tmp_path: Path) -> None:
    from mmexport.export.hook import best_checkpoint
    runner = type('Runner', (), dict(hooks=[], work_dir=str(tmp_path)))()
    with pytest.raises(VerificationError, match='no checkpoint'):
        best_checkpoint(runner)


def test_the_best_checkpoint_goes_before_the_last(tmp_path: Path) -> None:
    from mmengine.hooks import CheckpointHook

    from mmexport.export.hook import best_checkpoint
    best, last = tmp_path / 'best_mIoU_iter_2.pth', tmp_path / 'iter_4.pth'
    best.touch(), last.touch()
    (tmp_path / 'last_checkpoint').write_text(str(last))
    hook = CheckpointHook(save_best='mIoU')
    runner = type('Runner', (), dict(hooks=[hook], work_dir=str(tmp_path)))()
    assert best_checkpoint(runner) == last
    hook.best_ckpt_path = str(best)
    assert best_checkpoint(runner) == best


def test_what_an_export_raises_does_not_end_a_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mmexport.export import hook
    logged: list[str] = []

    def fail(runner: object) -> Path:
        raise ZeroDivisionError('from upstream')

    monkeypatch.setattr(hook, 'best_checkpoint', fail)
    logger = type('Logger', (), dict(info=lambda self, line: None, error=lambda self, line: logged.append(line)))()
    runner = type('Runner', (), dict(hooks=[], work_dir=str(tmp_path), logger=logger, cfg=None))()
    hook.ExportHook().after_train(runner)
    assert 'ZeroDivisionError' in logged[0]
    with pytest.raises(ZeroDivisionError):
        hook.ExportHook(strict=True).after_train(runner)


def test_pictures_of_the_validation_set_are_inputs(tmp_path: Path) -> None:
    """Files of the runner's own loader; a loader that cannot be built costs no export."""
    from mmengine.runner import Runner

    from mmexport.export.hook import PICTURES, validation_pictures
    cfg = config(tmp_path)
    dataset = {**cfg.train_dataloader.dataset, 'test_mode': True}
    cfg.merge_from_dict(dict(val_dataloader=dict(batch_size=1, num_workers=0, sampler=dict(type='DefaultSampler', shuffle=False),
                                                 dataset=dataset), val_cfg=dict(type='ValLoop'), val_evaluator=dict(type='IoUMetric')))
    runner = Runner.from_cfg(cfg)
    actual = validation_pictures(runner)
    assert len(actual) == PICTURES
    assert all(Path(picture).parent == tmp_path / 'data' / 'img' for picture in actual)
    warned: list[str] = []
    logger = type('Logger', (), dict(warning=lambda self, line: warned.append(line)))()
    assert validation_pictures(type('Runner', (), dict(val_dataloader=dict(dataset=None), logger=logger))()) == []
    assert 'no validation picture' in warned[0]


def test_unreadable_picture_of_the_hook_is_a_note(tmp_path: Path) -> None:
    """Its dataset may have pictures that the config's test pipeline does not read; nobody asked for them."""
    from mmexport import Exporter
    from tests.user_code import config as user_config
    cfg, checkpoint = user_config(inputs=dict(shape=(96, 96)))
    (tmp_path / 'no_picture.png').write_bytes(b'no picture')
    exporter = Exporter(cfg, checkpoint, tmp_path / 'out', diagnose=False, more_pictures=[str(tmp_path / 'no_picture.png')])
    report, = exporter.run()
    assert report.passed, report.reasons
    assert any('no_picture.png was left out' in note for note in report.notes)
