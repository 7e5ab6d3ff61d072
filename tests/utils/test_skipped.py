"""Check that a fast path that is skipped is named once."""
from __future__ import annotations

import pytest

from mmexport.utils import skipped as module
from mmexport.utils.skipped import skip, skipped


def test_each_fast_path_is_named_once_with_its_first_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, '_lines', {})
    assert skipped() == []
    skip('the fast conversion', 'KeyError: gone\nand more')
    skip('the fast conversion', 'another')
    skip('forms', ValueError())
    assert skipped() == ['slower than usual: the fast conversion was skipped: KeyError: gone',
                         'slower than usual: forms was skipped: ValueError']
    skip('open sizes', 'torch has no such function', 'sizes may be fixed')
    assert skipped()[-1] == 'sizes may be fixed: open sizes was skipped: torch has no such function'


def test_a_run_leaves_no_lines_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, '_lines', {})
    skip('what a backend needs', 'reason')
    with module.restore_notes():
        skip('a fast path of this model', 'reason')
        assert len(skipped()) == 2
    assert skipped() == ['slower than usual: what a backend needs was skipped: reason']
