"""Test for which code and versions a row is kept, and which of two rows stays."""
from __future__ import annotations

from pathlib import Path

from mmexport.sweep.store import Store
from tests.sweep import jobs as quick


def test_a_row_is_kept_for_its_versions_and_commit(tmp_path: Path) -> None:
    job = quick.jobs(1)[0].row('torchscript')
    one = Store(tmp_path / 'done.sqlite', dict(torch='2.13', commit='one'))
    one.keep(dict(**job, passed=False))
    assert one.row(job)
    other = Store(tmp_path / 'done.sqlite', dict(torch='2.13', commit='two'))
    assert not other.row(job)
    other.keep(dict(**job, passed=True))
    assert [row['under']['commit'] for row in other.rows()] == ['two']


def test_rows_of_another_machine_are_taken_once(tmp_path: Path) -> None:
    job, other = (job.row('torchscript') for job in quick.jobs(2))
    there = Store(tmp_path / 'there.sqlite', dict(commit='one'))
    there.keep(dict(**job, passed=True))
    here = Store(tmp_path / 'here.sqlite', dict(commit='one'))
    assert here.take(there.rows()) == 1
    assert here.take(there.rows()) == 0
    assert here.row(job)
    assert not here.row(other)
    assert here.rows() == there.rows()
    assert not Store(tmp_path / 'here.sqlite', dict(commit='two')).row(job)


def test_an_older_row_of_another_machine_replaces_no_newer_one(tmp_path: Path) -> None:
    job = quick.jobs(1)[0].row('torchscript')
    here = Store(tmp_path / 'here.sqlite', dict(commit='two'))
    here.keep(dict(**job, passed=False))
    old = dict(**job, passed=True, under=dict(commit='one'))
    assert here.take([old]) == 1
    assert [row['under']['commit'] for row in here.rows()] == ['two']
    assert here.take([{**old, 'under': dict(commit='three'), 'at': '2999-01-01 00:00:00'}]) == 1
    assert [row['under']['commit'] for row in here.rows()] == ['three']
