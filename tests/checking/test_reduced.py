"""Check the rules for files that compute in fewer bits."""
from __future__ import annotations

import pytest

from tests.checking.made import judge_rows


@pytest.mark.parametrize(('change', 'words'), [('nothing', None), ('score', None), ('box', None), ('row', 'are found again'),
                                               ('label', 'are found again'), ('scores', 'a score is off'), ('boxes', 'a box is')])
def test_instances_in_fewer_bits_are_all_found_with_their_scores_and_boxes(change: str, words: str | None) -> None:
    for precision in ('float16', 'bfloat16'):
        reason = judge_rows(change, precision=precision).reason
        assert reason is None if words is None else words in str(reason), (change, precision)
