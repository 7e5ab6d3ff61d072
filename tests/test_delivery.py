"""Samples that are kept, folders that are moved, and nothing of the user's that is touched."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from mmexport.artifact import Artifact, link, publish, staging_dir
from mmexport.checking.samples import Sample, read_samples
from mmexport.verify import keep_samples

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
    monkeypatch.setattr('mmexport.verify.MAX_SAMPLE_BYTES', 2000)
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
