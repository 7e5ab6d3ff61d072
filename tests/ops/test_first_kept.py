"""Test that the first boxes that stay are those of greedy suppression, as the reference kernel computes it."""
from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from mmexport.backends.exported.program import unavailable
from mmexport.ops.nms import first_kept
from mmexport.ops.nms.forms import BLOCK
from mmexport.ops.nms.reference import nms
from mmexport.ops.op import with_forms


def crowd(seed: int, count: int, spread: float = 100.0) -> tuple[Tensor, Tensor]:
    """Draw boxes (2, M, 4), the best first, on whole pixels (ties, equal boxes, boxes without area), and which take part."""
    generator = torch.Generator().manual_seed(seed)
    corner = (torch.rand(2, count, 2, generator=generator) * spread).round()
    sides = (torch.rand(2, count, 2, generator=generator) * 30).round()
    return torch.cat([corner, corner + sides], dim=2), torch.rand(2, count, generator=generator) < 0.9


def chained(count: int) -> Tensor:
    """Make boxes of which each overlaps the next one too much: every second one stays."""
    left = torch.arange(count) * 4.0
    return torch.stack([left, torch.zeros(count), left + 10, torch.full((count,), 10.0)], dim=1)[None]


def expected(boxes: Tensor, taking: Tensor, limit: int, threshold: float, offset: int) -> Tensor:
    places = taking.nonzero()[:, 0]
    scores = torch.arange(len(places), 0, -1).float()
    return places[nms(boxes[places], scores, threshold, offset)][:limit] if len(places) else places


@pytest.mark.parametrize('form', ['script', 'while_loop'])
@pytest.mark.parametrize('count', [1, 5, BLOCK - 1, BLOCK, BLOCK + 1, 700])
@pytest.mark.parametrize('limit', [3, 100])
def test_suppression_equals_the_reference_kernel(count: int, limit: int, form: str) -> None:
    for seed in range(3):
        boxes, taking = crowd(seed, count)
        threshold, offset = [0.5, 0.3, 0.65][seed], seed % 2
        with with_forms(nms=form):
            index, found = first_kept(boxes, taking, threshold, limit, offset)
        for image in range(2):
            rows = expected(boxes[image], taking[image], limit, threshold, offset)
            assert int(found[image]) == len(rows)
            assert torch.equal(index[image, :len(rows)], rows)


@pytest.mark.parametrize('form', ['script', 'while_loop'])
def test_a_chain_across_blocks_and_no_candidate_at_all(form: str) -> None:
    with with_forms(nms=form):
        index, found = first_kept(chained(600), torch.ones(1, 600, dtype=torch.bool), 0.3, 400)
        assert torch.equal(index[0, :int(found)], torch.arange(0, 600, 2))
        _, none = first_kept(chained(300), torch.zeros(1, 300, dtype=torch.bool), 0.3, 200)
    assert int(none) == 0


def test_a_trace_keeps_the_loop_for_other_boxes() -> None:
    boxes, taking = crowd(0, 40)
    traced = torch.jit.trace(lambda boxes, taking: first_kept(boxes, taking, 0.5, 20), (boxes, taking), check_trace=False)
    other, others = crowd(1, 700, 1000.0)
    for result, again in zip(traced(other, others), first_kept(other, others, 0.5, 20), strict=True):
        assert torch.equal(result, again)


def test_without_values_it_has_the_same_shapes() -> None:
    boxes, taking = crowd(0, 40)
    index, found = first_kept(boxes.to('meta'), taking.to('meta'), 0.5, 20)
    assert index.shape == (2, 20) and found.shape == (2,)


def peak(work: Callable[[], object]) -> int:
    """Return the most bytes of tensors that `work` holds at a time, of what it allocates itself."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work()
    # One event for each tensor that comes, and one for each that goes.
    held = most = 0
    events = record.profiler.kineto_results.events()  # type: ignore[union-attr]
    for event in sorted((event for event in events if event.name() == '[memory]'), key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def test_the_peak_of_memory_counts_what_is_held_at_once() -> None:
    assert peak(lambda: [torch.zeros(1_000_000) for _ in range(10)]) >= 40_000_000
    assert peak(lambda: [torch.zeros(1_000_000).sum() for _ in range(10)]) < 10_000_000


@pytest.mark.parametrize('form', [None, 'while_loop'])
def test_memory_does_not_grow_with_the_square_of_the_boxes(form: str | None) -> None:
    """The matrix of all overlaps of 20,000 boxes would take 1.6 GB."""
    boxes, taking = crowd(0, 20000, 5000.0)
    with with_forms(nms=form) if form else nullcontext():
        assert peak(lambda: first_kept(boxes[:1], taking[:1], 0.5, 100)) < 20_000_000


class OfBoxes(nn.Module):
    def __init__(self, limit: int | None) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, boxes: Tensor) -> tuple[Tensor, Tensor]:
        return first_kept(boxes, torch.ones_like(boxes[..., 0], dtype=torch.bool), 0.5, self.limit or boxes.shape[1])


def test_an_earlier_program_leaves_no_guard() -> None:
    """Dynamo compared the open limit with the earlier one, and the program was refused."""
    if reason := unavailable():
        pytest.skip(reason)
    boxes, axes = crowd(0, 50)[0], {1: torch.export.Dim('boxes', max=5000)}
    with with_forms(nms='while_loop'):
        torch.export.export(OfBoxes(24), (boxes,), dynamic_shapes=({0: torch.export.Dim('batch', max=9), **axes},), strict=False)
        program = torch.export.export(OfBoxes(None), (boxes,), dynamic_shapes=(axes,), strict=False)
    for result, again in zip(program.module()(boxes[:, :24]), OfBoxes(None)(boxes[:, :24]), strict=True):
        assert torch.equal(result, again)
