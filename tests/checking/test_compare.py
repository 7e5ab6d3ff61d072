"""Check what is compared before any value: counts, names, shapes, dtypes, NaN."""
from __future__ import annotations

import pytest
import torch

from tests.checking.made import LOGITS, judge


@pytest.mark.parametrize('value', [float('nan'), float('inf')])
def test_nan_never_passes_even_where_expected(value: float) -> None:
    expected = torch.randn(1, 2, 4, 4)
    broken = expected.clone()
    broken[0, 0, 0, 0] = value
    for one, other in ((expected, broken), (broken, expected), (broken, broken)):
        row = judge(LOGITS, one, other, floors={'logits': 1.0})
        assert not row.passed
        assert 'NaN or inf' in str(row.reason)
