"""Code as users write it: what a tracer decides once is turned by an input or refused by the file, and the report names the line."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mmexport import Exporter
from mmexport.report import Report
from tests.user_code import config


def export(work_dir: Path, head: str = 'plain', model: str = 'plain', **section: object) -> Report:
    cfg, checkpoint = config(head, model, **section)
    return Exporter(cfg, checkpoint, work_dir, diagnose=False).run()


@pytest.mark.parametrize('habit', ['branch_on_aspect', 'branch_on_area', 'branch_on_wide', 'branch_on_int', 'branch_between',
                                   'chunks_of_a_batch', 'chunks_of_rows'])
def test_a_branch_on_a_size_is_turned_and_named(habit: str, tmp_path: Path) -> None:
    report = export(tmp_path, habit)
    assert report.passed is False
    words = ' '.join(report.reasons)
    assert 'tests/user_code.py:' in words, words
    assert (tmp_path / 'failed' / 'torchscript').is_dir()
    assert not (tmp_path / 'torchscript').exists()


@pytest.mark.parametrize('habit', ['brightens', 'normalises'])
def test_a_branch_on_values_is_turned_and_named(habit: str, tmp_path: Path) -> None:
    report = export(tmp_path, model=habit)
    assert report.passed is False
    assert 'tests/user_code.py:' in ' '.join(report.reasons), report.reasons


def test_a_size_beyond_the_ranges_is_refused_by_the_file(tmp_path: Path) -> None:
    report = export(tmp_path, 'branch_on_long_side')
    assert report.passed, report.reasons
    spec = report.artifacts[0].manifest['inputs'][0]
    assert spec['ranges']['width'][1] < 500
    loaded = torch.jit.load(str(report.artifacts[0].file))
    with pytest.raises(Exception, match='was checked from 64 to'):
        loaded(torch.zeros(1, 3, 64, 512))


def test_a_condition_that_only_refuses_is_no_branch(tmp_path: Path) -> None:
    report = export(tmp_path, 'refuses_a_size')
    assert report.passed, report.reasons
    assert not report.branches.unresolved


def test_an_accepted_branch_is_no_obstacle_and_is_recorded(tmp_path: Path) -> None:
    from mmexport.branches import BranchLog
    from mmexport.branches.recorder import Run, Site
    site = Site('/home/user/head.py', 12, 4, 'w > h', 'size')
    runs = {'a': Run(seen={(site, 0, 0): (False, (64, 96))}), 'b': Run(seen={(site, 0, 0): (False, (64, 128))})}
    log = BranchLog(lambda image: None, 3, runs, {'a': (1, 64, 96), 'b': (1, 64, 128)})
    assert len(log.open_keys('size')) == 1
    log.accepted = ('head.py:12',)
    assert not log.open_keys('size')


def test_test_step_has_the_last_word_on_decisions(tmp_path: Path) -> None:
    report = export(tmp_path, model='swaps labels')
    assert report.passed is False
    assert any(reason.startswith('test_step on') for reason in report.reasons), report.reasons


def test_plain_code_of_a_user_passes(tmp_path: Path) -> None:
    report = export(tmp_path)
    assert report.passed, report.reasons
    assert not report.branches.once and not report.branches.unresolved
