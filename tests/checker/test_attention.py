"""Test how attention masks are judged: by the sign of eager's logits, layer by layer."""
from __future__ import annotations

import torch
from torch import Tensor

from mmexport.checker.compare import compare
from mmexport.checker.comparison import Comparison
from mmexport.checker.kinds.attention import CELLS, DECIDING
from mmexport.checker.packing import packed, unpacked

SPECS = [dict(name='attention', dtype='bool', kind='attention')]
# Of three layers.
COUNTS = (4, 6, 4)


def masks_and_evidence(near: tuple[int, ...] = ()) -> tuple[Tensor, dict[str, Tensor]]:
    """Return masks (2, 3, 14) and evidence; the cells `near` of the first query of the first picture may be either."""
    masks = torch.rand(2, 3, sum(COUNTS), generator=torch.Generator().manual_seed(0)) < 0.5
    logits = torch.where(masks, -0.5, 0.5).half()
    logits[0, 0, list(near)] *= 1e-4
    return masks, {DECIDING: logits, CELLS: torch.tensor(COUNTS)}


def row_of(own: Tensor, masks: Tensor, evidence: dict[str, Tensor]) -> Comparison:
    row, = compare(SPECS, dict(attention=own), [masks], evidence, sample='', stage='')
    return row


def flipped(masks: Tensor, *cells: tuple[int, int, int]) -> Tensor:
    changed = masks.clone()
    for cell in cells:
        changed[cell] = ~changed[cell]
    return changed


def test_own_masks_pass_and_each_sure_cell_that_differs_does_not() -> None:
    own, evidence = masks_and_evidence()
    assert row_of(own, own, evidence).metrics == dict(cells=own.numel(), cells_moved=0, worst_query=0.0)
    for cell in ((0, 0, 0), (1, 2, 5), (0, 1, 13)):
        row = row_of(own, flipped(own, cell), evidence)
        assert not row.passed and row.beyond == 1 / own.numel()


def test_a_cell_near_the_threshold_may_be_either() -> None:
    own, evidence = masks_and_evidence(near=(2,))
    row = row_of(own, flipped(own, (0, 0, 2)), evidence)
    assert row.passed and row.metrics['cells_moved'] == 1


def test_a_file_in_fewer_bits_may_differ_farther_from_the_threshold() -> None:
    own, evidence = masks_and_evidence()
    evidence[DECIDING][0, 0, 2] *= 1e-2
    assert not row_of(own, flipped(own, (0, 0, 2)), evidence).passed
    row, = compare(SPECS, dict(attention=own), [flipped(own, (0, 0, 2))], evidence, sample='', stage='', precision='float16')
    assert row.passed and row.beyond == 0


def test_wrong_masks_of_one_query_fail_in_any_precision() -> None:
    """Of ten thousand cells they are not one in a hundred, and eager follows what passes."""
    logits = torch.randn(2, 100, 60, generator=torch.Generator().manual_seed(0)).half()
    own, evidence = logits < 0, {DECIDING: logits, CELLS: torch.tensor((40, 20))}
    wrong = own.clone()
    wrong[0, 3, 40:] = ~wrong[0, 3, 40:]
    for precision in ('float16', 'bfloat16'):
        for masks, passes in ((own, True), (flipped(own, (0, 3, 5), (1, 8, 50)), True), (wrong, False)):
            row, = compare(SPECS, dict(attention=own), [masks], evidence, sample='', stage='', precision=precision)
            assert row.passed is passes, row.reason
    assert row.beyond is not None and row.beyond < 0.01 and 'of the cells of a query' in str(row.reason)


def test_layers_after_another_choice_are_judged_once_eager_has_followed() -> None:
    own, evidence = masks_and_evidence(near=(2,))
    masks = flipped(own, (0, 0, 2), (0, 1, 7))
    assert row_of(own, masks, evidence).passed, 'what the second layer must be, eager has not computed yet'
    assert not row_of(masks, masks, evidence).passed, 'now it has, and it is sure'
    assert not row_of(own, flipped(own, (0, 0, 2), (0, 1, 3)), evidence).passed, 'the same layer is judged'
    assert not row_of(own, flipped(own, (0, 0, 2), (1, 1, 7)), evidence).passed, 'the other picture is judged'


def test_choices_come_back_from_json_as_they_were() -> None:
    for tensor in (torch.rand(2, 3, 50) < 0.5, torch.randint(0, 1000, (1, 9)), torch.zeros(0, 4, dtype=torch.int64)):
        back = unpacked(packed(tensor))
        assert back.dtype == tensor.dtype and torch.equal(back, tensor)
