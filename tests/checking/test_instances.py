"""Check the matching of instances."""
from __future__ import annotations

import torch

from mmexport.checking.compare import compare
from tests.checking.made import INSTANCE, instances, judge_rows


def test_instances_are_a_set() -> None:
    assert judge_rows('nothing').passed
    assert judge_rows('order').passed
    for change in ('mask', 'score', 'label', 'row', 'box'):
        assert not judge_rows(change).passed, change
    edge = torch.tensor([[False, False, True, False]])
    assert judge_rows('row', edge_rows=edge).passed
    near = torch.zeros(1, 4, 8, 8, dtype=torch.bool)
    near[0, 0, 7, 7] = True
    assert judge_rows('mask', mask_near=near).passed
    # What eager is unsure of everywhere is no comparison.
    assert not judge_rows('row', edge_rows=torch.ones(1, 4, dtype=torch.bool)).passed
    assert not judge_rows('mask', mask_near=torch.ones_like(near)).passed


def test_rows_that_do_not_count_are_zero_and_no_rows_are_no_comparison() -> None:
    wrong = {name: tensor.clone() for name, tensor in instances().items()}
    wrong['scores'][0, 3] = 0.5
    assert 'not zero' in str(compare(INSTANCE, instances(), list(wrong.values()), {}, sample='s', stage='t')[0].reason)
    none = {name: torch.zeros_like(tensor) for name, tensor in instances().items()}
    edge = torch.ones(1, 4, dtype=torch.bool)
    assert not compare(INSTANCE, instances(), list(none.values()), {'edge_rows': edge}, sample='s', stage='t')[0].passed
