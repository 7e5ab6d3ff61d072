"""Test samples that are kept, folders that are moved, and nothing of the user's that is touched."""
from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mmexport import Exporter
from mmexport.artifact import Artifact
from mmexport.checker.samples import Sample, read_samples
from mmexport.errors import CheckpointError, VerificationError
from mmexport.export.publish import publish_report, report_failure_on_exception
from mmexport.export.staging import link, publish, staging_dir
from mmexport.report.facts import Report
from mmexport.verification.verify import keep_samples
from tests.tiny import seeded, tiny

SPECS = [dict(name='logits', dtype='float32', axes=['batch', 'class', 'h', 'w'], kind='pixels')]


def artifact(folder: Path) -> Artifact:
    folder.mkdir(parents=True)
    (folder / 'model.pt').write_bytes(b'weights')
    return Artifact('torchscript', folder / 'model.pt', dict(outputs=SPECS, num_classes=4, backend='torchscript'))


def sample(name: str, side: int, seed: int) -> Sample:
    generator = torch.Generator().manual_seed(seed)
    return Sample(name, torch.zeros(1, 3, 4, 4), {'logits': torch.randn(1, 4, side, side, generator=generator)})


def test_the_pair_is_kept_together(tmp_path: Path) -> None:
    made = artifact(tmp_path / 'a')
    assert keep_samples(made, [sample('traced', 8, 0), sample('same shape', 8, 1), sample('small', 4, 2)], 1e-4) == [
        'traced', 'same shape', 'small']


def test_a_pair_that_is_too_large_leaves_its_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = artifact(tmp_path / 'a')
    monkeypatch.setattr('mmexport.verification.verify.MAX_SAMPLE_BYTES', 2000)
    assert keep_samples(made, [sample('traced', 16, 0), sample('same shape', 16, 1), sample('small', 4, 2)], 1e-4) == ['small']
    kept, extra = read_samples(tmp_path / 'a' / 'samples.npz')
    assert [one.name for one in kept] == ['small']
    assert extra['judged']['vacuous'] == {}


def test_a_work_dir_may_be_anybodys_folder(tmp_path: Path) -> None:
    for name in ('.old-photos', 'photos', '.tmp-mywork-999999'):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'mine').write_text('precious')
    left = tmp_path / '.mmexport-tmp-x-999999999'
    left.mkdir()
    with staging_dir(tmp_path):
        pass
    assert not left.exists()
    assert all((tmp_path / name / 'mine').read_text() == 'precious' for name in ('.old-photos', 'photos', '.tmp-mywork-999999'))


def test_publish_replaces_a_folder_whole(tmp_path: Path) -> None:
    for name in ('place', 'new'):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    publish(tmp_path / 'new', tmp_path / 'place')
    assert [path.name for path in (tmp_path / 'place').iterdir()] == ['new']
    assert not (tmp_path / 'new').exists()


def test_the_report_is_a_link_into_the_folder_of_its_file(tmp_path: Path) -> None:
    (tmp_path / 'torchscript').mkdir()
    (tmp_path / 'torchscript' / 'report.json').write_text('{"run": 1}')
    (tmp_path / 'report.json').write_text('{"run": 0}')
    link(tmp_path / 'report.json', 'torchscript/report.json')
    assert json.loads((tmp_path / 'report.json').read_text()) == {'run': 1}
    (tmp_path / 'torchscript' / 'report.json').write_text('{"run": 2}')
    assert json.loads((tmp_path / 'report.json').read_text()) == {'run': 2}


@pytest.fixture(scope='module')
def exported(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Run a tiny model once, of which the tests below deliver copies."""
    cfg = tiny('segformer_b0', outputs='raw')
    return Exporter(cfg, model=seeded('segformer_b0'), work_dir=tmp_path_factory.mktemp('run'), samples=False).run()[0]


def staged(report: Report, work_dir: Path, passed: bool) -> Report:
    """Return a copy of the run before its delivery into `work_dir`, with another verdict."""
    folder = work_dir / '.staging' / 'torchscript'
    shutil.copytree(report.artifacts[0].folder, folder)
    made = Artifact.read(folder)
    actual = dict(report.checks[0].result or {})
    if not passed:
        actual['rows'] = [{**row, 'problem': 'planted'} for row in actual['rows']]
    return replace(report, work_dir=work_dir, artifacts=(made,), checks=(replace(report.checks[0], result=actual),))


def test_what_passed_is_delivered_with_its_report_and_samples(exported: Report, tmp_path: Path) -> None:
    report = publish_report(staged(exported, tmp_path, True), [sample('traced', 4, 0)], keep=True)
    folder = tmp_path / 'torchscript'
    assert report.artifacts[0].file == folder / 'model.pt'
    assert sorted(path.name for path in folder.iterdir()) == ['manifest.json', 'model.pt', 'report.json', 'samples.npz']
    assert json.loads((folder / 'manifest.json').read_text())['verified'] is True
    assert json.loads((tmp_path / 'report.json').read_text())['passed'] is True
    assert not (tmp_path / 'failed').exists()


def test_what_failed_lies_apart_and_the_root_says_so(exported: Report, tmp_path: Path) -> None:
    publish_report(staged(exported, tmp_path, True), [], keep=False)
    good = (tmp_path / 'torchscript' / 'report.json').read_text()
    publish_report(staged(exported, tmp_path, False), [], keep=False)
    assert json.loads((tmp_path / 'failed' / 'torchscript' / 'manifest.json').read_text())['verified'] is False
    assert (tmp_path / 'torchscript' / 'report.json').read_text() == good
    assert json.loads((tmp_path / 'report.json').read_text())['passed'] is False
    # A pass afterwards replaces both.
    publish_report(staged(exported, tmp_path, True), [], keep=False)
    assert not (tmp_path / 'failed').exists()
    assert json.loads((tmp_path / 'report.json').read_text())['passed'] is True


def test_a_verified_file_that_one_without_a_check_replaces_is_told(exported: Report, tmp_path: Path) -> None:
    def unchecked() -> Report:
        report = staged(exported, tmp_path, True)
        return replace(report, checks=(replace(report.checks[0], result=None),))

    publish_report(staged(exported, tmp_path, True), [], keep=False)
    replaced = f'the file in {tmp_path / "torchscript"} had been verified; this one replaces it and was not checked'
    assert publish_report(unchecked(), [], keep=False).notes[-1] == replaced
    assert replaced not in publish_report(unchecked(), [], keep=False).notes


def test_file_changed_after_its_check_is_not_published(exported: Report, tmp_path: Path) -> None:
    report = staged(exported, tmp_path, True)
    report.artifacts[0].file.write_bytes(b'another file')
    with pytest.raises(VerificationError, match='after it was checked'):
        publish_report(report, [], keep=False)
    assert not (tmp_path / 'torchscript').exists()


def test_a_run_that_stops_early_is_what_the_report_says(tmp_path: Path) -> None:
    """An earlier file stays, with its own report."""
    folder = tmp_path / 'torchscript'
    folder.mkdir()
    (folder / 'report.json').write_text('{"passed": true}')
    link(tmp_path / 'report.json', 'torchscript/report.json')
    with pytest.raises(CheckpointError), report_failure_on_exception(tmp_path, checkpoint='other.pth'):
        raise CheckpointError('other.pth has 3 of 80 keys')
    message = json.loads((tmp_path / 'report.json').read_text())
    assert (message['passed'], message['checkpoint']) == (False, 'other.pth')
    assert message['reasons'] == ['CheckpointError: other.pth has 3 of 80 keys']
    assert json.loads((folder / 'report.json').read_text()) == {'passed': True}


def test_a_run_that_stops_in_an_empty_folder_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError), report_failure_on_exception(tmp_path):
        raise CheckpointError('none')
    assert list(tmp_path.iterdir()) == []
