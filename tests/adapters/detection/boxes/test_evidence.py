"""Test that rows which rounding changes are among those that eager is said to be unsure of."""
from __future__ import annotations

import time

import pytest
import torch

from mmexport.adapters.detection.boxes.candidates import Candidates
from mmexport.adapters.detection.boxes.evidence import close_calls, scale_of, score_slack
from mmexport.adapters.detection.boxes.suppression import kept
from tests.adapters.detection.boxes.crowds import SCALE, crowd, rounded


@pytest.mark.parametrize('limit', [12, 60])
def test_what_rounding_changes_was_in_doubt(limit: int) -> None:
    cfg = dict(score_thr=0.05, max_per_img=limit, nms=dict(type='nms', iou_threshold=0.5))
    changed = unsure = total = 0
    for seed in range(40):
        candidates = crowd(seed)
        evidence = close_calls(candidates, cfg, SCALE)
        maybe = evidence['maybe'][0][evidence['maybe'][0, :, 5] >= 0]
        boxes, _, _, num = (part[0] for part in kept(candidates, cfg))
        doubtful = evidence['unsure'][0, :int(num)]
        unsure, total = unsure + int(doubtful.sum()), total + int(num)
        generator = torch.Generator().manual_seed(seed)
        for _ in range(12):
            others, _, _, other_num = (part[0] for part in kept(rounded(candidates, generator), cfg))
            apart = torch.cdist(boxes[:int(num)], others[:int(other_num)], p=float('inf'))
            lost, new = apart.amin(dim=1) > 0.01, apart.amin(dim=0) > 0.01
            changed += int(lost.sum() + new.sum())
            assert not bool((lost & ~doubtful).any()), 'a row that eager was sure of is gone'
            for row in others[:int(other_num)][new]:
                assert float((maybe[:, :4] - row).abs().amax(dim=1).min()) < 0.01, 'a row came that eager could not have kept'
    assert changed > 200, 'rounding changes much here'
    assert unsure < 0.4 * total, 'and most rows are sure all the same'


def test_either_of_two_equal_boxes_suppresses_the_others() -> None:
    boxes = torch.tensor([[0.0, 0, 100, 100], [0, 0, 100, 100], [0, 0, 100, 96], [200, 0, 300, 100]])
    candidates = Candidates(boxes[None], torch.tensor([[0.8, 0.8, 0.6, 0.5]]), torch.zeros(1, 4, dtype=torch.int64),
                            torch.ones(1, 4, dtype=torch.bool))
    evidence = close_calls(candidates, dict(score_thr=0.05, max_per_img=10, nms=dict(type='nms', iou_threshold=0.5)), SCALE)
    assert evidence['unsure'][0, :2].tolist() == [True, False]
    assert evidence['maybe'][0, evidence['maybe'][0, :, 5] >= 0, 4].tolist() == pytest.approx([0.8])


def test_each_level_has_its_own_scale() -> None:
    maps = [torch.full((1, 4, 2, 2), -2.0), torch.full((1, 4, 1, 1), 300.0)]
    candidates = crowd(0, 90)
    assert torch.equal(scale_of(maps, candidates, 45), torch.tensor([2.0] * 45 + [300.0] * 45))
    # As many for all levels together: which is of which is not known.
    assert scale_of(maps, candidates, 90) == 300.0


def test_products_below_the_threshold_are_judged_as_others() -> None:
    """Heads with a factor compare the score of the class with the threshold, and multiply then."""
    boxes = torch.tensor([[0.0, 0, 100, 100], [0, 0, 100, 96], [200, 0, 300, 100], [400, 0, 500, 100]])
    candidates = Candidates(boxes[None], torch.tensor([[0.03, 0.03, 0.04, 0.02]]), torch.zeros(1, 4, dtype=torch.int64),
                            torch.tensor([[True, True, True, False]]))
    for nms in (dict(type='nms', iou_threshold=0.5), dict(type='soft_nms', iou_threshold=0.5)):
        cfg = dict(score_thr=0.05, max_per_img=10, nms=nms)
        evidence = close_calls(candidates, cfg, SCALE)
        count = int(kept(candidates, cfg)[3])
        assert count == (2 if nms['type'] == 'nms' else 3)
        assert evidence['unsure'][0, 0].item() is False, 'the box with nothing around it'
        assert evidence['unsure'][0, 1:count].any(), 'one of two that tie'
        assert float(evidence['row_slack'][0, 0]) < 0.01 and not (evidence['maybe'][0, :, 0] == 400).any()


def test_two_scores_next_to_each_other_near_one_may_change_places() -> None:
    score = torch.tensor([1.0])
    assert score_slack(score, 0.1) > score - torch.nextafter(score, torch.zeros(1))


def test_a_scale_by_candidate_is_that_of_each() -> None:
    cfg = dict(score_thr=0.05, max_per_img=12, nms=dict(type='nms', iou_threshold=0.5))
    one, all_alike = (close_calls(crowd(1), cfg, scale) for scale in (SCALE, torch.full((90,), SCALE)))
    assert one.keys() == all_alike.keys() and all(torch.equal(one[name], all_alike[name]) for name in one)
    narrow = close_calls(crowd(1), cfg, torch.full((90,), SCALE / 100))
    assert (narrow['row_slack'] < one['row_slack']).all()


def test_rows_that_fill_up_are_compared_with_none() -> None:
    """With a threshold of 0, as proposals have it, twelve thousand equal boxes of score 0 would overlap each other."""
    boxes = torch.tensor([[0.0, 0, 100, 100], [0, 0, 100, 98], [200, 0, 300, 100]])
    filled = Candidates(torch.cat([boxes, boxes[:1].expand(12000, 4)])[None], torch.tensor([[0.8, 0.6, 0.5] + [0.0] * 12000]),
                        torch.zeros(1, 12003, dtype=torch.int64), torch.tensor([[True] * 3 + [False] * 12000]))
    cfg = dict(score_thr=0.0, max_per_img=2000, nms=dict(type='nms', iou_threshold=0.5))
    started = time.perf_counter()
    evidence = close_calls(filled, cfg, SCALE)
    # A minute or more where they are compared.
    assert time.perf_counter() - started < 10
    alone = close_calls(Candidates(*(part[:, :3] for part in filled)), cfg, SCALE)
    assert torch.equal(evidence['unsure'], alone['unsure']) and int(evidence['least_num']) == int(alone['least_num']) == 2


def test_a_box_that_comes_instead_of_another_pushes_none_over_the_cut() -> None:
    """Of two that tie, one is a row; a third of the same place that is not tied with them pushes none either, and one beside does."""
    pair = torch.tensor([[0.0, 0, 100, 100], [0, 0, 100, 98]])
    apart = torch.tensor([[200.0, 0, 300, 100], [400, 0, 500, 100], [600, 0, 700, 100], [800, 0, 900, 100]])
    cfg = dict(score_thr=0.05, max_per_img=4, nms=dict(type='nms', iou_threshold=0.5))

    def unsure(boxes: torch.Tensor, scores: list[float]) -> list[bool]:
        count = len(boxes)
        candidates = Candidates(boxes[None], torch.tensor([scores]), torch.zeros(1, count, dtype=torch.int64), torch.ones(1, count) > 0)
        return close_calls(candidates, cfg, SCALE)['unsure'][0].tolist()  # type: ignore[no-any-return]

    assert unsure(torch.cat([pair, apart]), [0.9, 0.9, 0.7, 0.6, 0.5, 0.4]) == [True, False, False, False]
    # Its overlap is at the threshold: it may be one more.
    beside = torch.tensor([[0.0, 0, 50.001, 100]])
    assert unsure(torch.cat([pair[:1], beside, apart]), [0.9, 0.8, 0.7, 0.6, 0.5, 0.4]) == [False, False, False, True]


def test_a_row_that_ties_with_one_at_a_moved_cut_is_unsure() -> None:
    """One box more before the cut, and the last but one may be the last: which of two that tie goes is open."""
    boxes = torch.tensor([[0.0, 0, 100, 100], [0, 0, 50.001, 100], [200, 0, 300, 100], [400, 0, 500, 100], [600, 0, 700, 100]])
    scores = torch.tensor([[0.9, 0.8, 0.5, 0.5, 0.3]])
    candidates = Candidates(boxes[None], scores, torch.zeros(1, 5, dtype=torch.int64), torch.ones(1, 5) > 0)
    evidence = close_calls(candidates, dict(score_thr=0.05, max_per_img=3, nms=dict(type='nms', iou_threshold=0.5)), SCALE)
    assert evidence['unsure'][0].tolist() == [False, True, True]
