"""Test the revision that a row of a sweep is kept for."""
from __future__ import annotations

from pathlib import Path

import pytest

from mmexport.sweep import revision


def test_a_patch_that_is_in_no_commit_yet_makes_another_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {'rev-parse': str(Path(revision.__file__).parents[2]), 'diff': '', 'describe': 'abc1234', 'ls-files': ''}
    monkeypatch.setattr(revision, '_git', lambda root, verb, *rest: answers[verb])
    assert revision.revision() == 'abc1234'
    answers['ls-files'] = 'patches/upsample.py'
    assert revision.revision().startswith('abc1234-dirty-')
