"""Test that a check of the model's own on sizes stays in the program; a check of torch's layouts does not refuse a size that is right."""
from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmexport.backends.exported import program, valid_sizes
from mmexport.backends.exported.internals import layout_guards
from mmexport.checker.conditions import refused
from mmexport.ops.sizes import padding_to_multiple
from mmexport.utils import skipped as skipping

AUTO = torch.export.Dim.AUTO
DIMS = ({0: AUTO(min=1, max=64), 2: AUTO(min=64, max=4096), 3: AUTO(min=64, max=4096)},)


class Head(nn.Module):
    """Run two strided convolutions, `habit` on the features (N, C, h, w), and their enlargement."""

    def __init__(self, habit: Callable[[Tensor, int, int], Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.habit = nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 4, 3, 2, 1), habit

    def forward(self, image: Tensor) -> Tensor:
        features = self.second(self.first(image))
        features = self.habit(features, features.shape[2], features.shape[3])
        return F.interpolate(features, size=image.shape[2:], mode='bilinear')


def aspect(y: Tensor, h: int, w: int) -> Tensor:
    return y * 1.5 if 3 * h < 2 * w - 20 else y


def long_side(y: Tensor, h: int, w: int) -> Tensor:
    return y * 1.5 if max(h, w) > 500 else y


def checked(y: Tensor, h: int, w: int) -> Tensor:
    torch._check(h != 96)
    return y


def area(y: Tensor, h: int, w: int) -> Tensor:
    return y * 1.5 if h * w > 96 * 96 else y


def halves(y: Tensor, h: int, w: int) -> Tensor:
    return y * 1.5 if math.ceil(h / 2) > 100 else y


# The size of an image that the traced 480 x 544 answers otherwise than.
TURNED = {aspect: (1, 3, 128, 512), long_side: (2, 3, 2048, 64), checked: (1, 3, 384, 64), area: (1, 3, 384, 400)}


@pytest.mark.parametrize('habit', list(TURNED), ids=lambda habit: habit.__name__)
def test_a_check_of_the_models_own_stays(habit: Callable[[Tensor, int, int], Tensor]) -> None:
    torch.manual_seed(0)
    head = Head(habit).eval()
    actual = program._exported(head, (torch.zeros(2, 3, 480, 544),), DIMS, {})
    turned = torch.randn(TURNED[habit])
    same = torch.randn(1, 3, 481, 545)
    if habit is area:
        # 120 x 136 lies above the limit, so what turns it is small.
        turned = torch.randn(1, 3, 128, 128)
    torch.testing.assert_close(actual.module()(same), head(same), rtol=1e-5, atol=1e-5)
    with pytest.raises((RuntimeError, AssertionError)):
        actual.module()(turned)


def test_a_check_that_the_graph_cannot_hold_is_for_the_runner() -> None:
    actual = program._exported(Head(halves).eval(), (torch.zeros(2, 3, 480, 544),), DIMS, {})
    conditions = valid_sizes.conditions_of(actual)
    assert refused(conditions, dict(batch=1, height=2048, width=64)) is not None
    assert refused(conditions, dict(batch=1, height=480, width=96)) is None


def test_a_head_without_checks_takes_every_size() -> None:
    torch.manual_seed(0)
    head = Head(lambda y, h, w: y).eval()
    actual = program._exported(head, (torch.zeros(2, 3, 480, 544),), DIMS, {})
    for size in [(1, 3, 64, 64), (3, 3, 128, 513), (1, 3, 1001, 70)]:
        image = torch.randn(size)
        torch.testing.assert_close(actual.module()(image), head(image), rtol=1e-5, atol=1e-5)


def pyramid(y: Tensor, h: int, w: int) -> Tensor:
    """Pool as DDRNet: of a picture of 64 x 64 its map is one pixel, and which layout that has is no matter of the model's."""
    last = y[:, :, ::16, ::16]
    last = last + F.interpolate(F.avg_pool2d(last, 5, 2, 2), size=last.shape[2:], mode='bilinear')
    return y + F.interpolate(last, size=(h, w), mode='bilinear')


def grouped(y: Tensor, h: int, w: int) -> Tensor:
    """Group as ISANet: a picture of 64 x 64 is one group, and which strides that has is no matter of the model's."""
    down, right = padding_to_multiple(h, 16), padding_to_multiple(w, 16)
    groups = F.pad(y, [0, right, 0, down]).unflatten(3, (-1, 16)).unflatten(2, (-1, 16)).permute(0, 3, 5, 1, 2, 4)
    means = groups.flatten(0, 2).softmax(1).unflatten(0, (y.shape[0], 16, 16)).permute(0, 3, 4, 1, 5, 2).flatten(4, 5).flatten(2, 3)
    return y + means[:, :, :h, :w]


@pytest.mark.parametrize('habit', [pyramid, grouped], ids=lambda habit: habit.__name__)
def test_a_layout_of_the_example_is_no_range_of_sizes(habit: Callable[[Tensor, int, int], Tensor]) -> None:
    torch.manual_seed(0)
    head = Head(habit).eval()
    example = torch.zeros(2, 3, 480, 544)
    actual = program._exported(head, (example,), DIMS, {})
    axes = ('batch', 'height', 'width')
    assert valid_sizes.valid_ranges(actual, example, axes) == valid_sizes.ranges(example, axes)
    for size in [(1, 3, 64, 64), (3, 3, 64, 640), (1, 3, 1024, 64), (1, 3, 257, 1033)]:
        image = torch.randn(size)
        torch.testing.assert_close(actual.module()(image), head(image), rtol=1e-5, atol=1e-5)


def windows(y: Tensor, h: int, w: int) -> Tensor:
    """Pad to windows of 7 x 7 and enlarge with its norm, as Swin."""
    padded = F.pad(y, [0, padding_to_multiple(w, 7), 0, padding_to_multiple(h, 7)])
    parts = padded.unflatten(3, (-1, 7)).unflatten(2, (-1, 7)).permute(0, 2, 4, 3, 5, 1).flatten(3, 4).flatten(0, 2)
    mixed = F.layer_norm(parts, parts.shape[-1:]).transpose(1, 2).contiguous()
    return F.adaptive_avg_pool2d(padded, 1) + y * mixed.mean()


@pytest.mark.parametrize('habit', [pyramid, grouped, windows], ids=lambda habit: habit.__name__)
def test_decomposing_adds_no_conditions(habit: Callable[[Tensor, int, int], Tensor]) -> None:
    """What ONNX's converter asks about sizes was taken for conditions of the program, and OpenVINO then refused a Swin's width."""
    actual = program._exported(Head(habit).eval(), (torch.zeros(2, 3, 480, 544),), DIMS, {})
    before = valid_sizes.conditions_of(actual)
    actual.run_decompositions()
    width = next(node for node in actual.graph.nodes if node.name == 'image').meta['val'].shape[3].node.expr
    layout_guards.sizes_of(actual).deferred_runtime_asserts.setdefault(width, []).append(SimpleNamespace(expr=width > 7))
    assert valid_sizes.conditions_of(actual) == before


def sliced(y: Tensor, h: int, w: int) -> Tensor:
    part = y[:, :, :32]
    return y * part.shape[2]


def single(y: Tensor, h: int, w: int) -> Tensor:
    """Ask after torch has asked the same for its layout."""
    small = y[:, :, ::32, ::32].contiguous() * 2
    return y * 1.5 if small.shape[2] == 1 else y


@pytest.mark.parametrize(('habit', 'rows'), [(sliced, 64), (single, 96)], ids=lambda value: getattr(value, '__name__', ''))
def test_a_size_that_decides_a_number_is_right_or_refused(habit: Callable[[Tensor, int, int], Tensor], rows: int) -> None:
    torch.manual_seed(0)
    head = Head(habit).eval()
    actual = program._exported(head, (torch.zeros(2, 3, 480, 544),), DIMS, {})
    limits = valid_sizes.valid_ranges(actual, torch.zeros(2, 3, 480, 544), ('batch', 'height', 'width'))
    image = torch.randn(1, 3, rows, 256)
    if not limits['height'][0] <= rows <= limits['height'][1]:
        return
    try:
        answer = actual.module()(image)
    except (RuntimeError, AssertionError):
        return
    torch.testing.assert_close(answer, head(image), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('broken', ['torch.fx.experimental.symbolic_shapes.ShapeEnv', f'{layout_guards.__name__}._asked_for_layout',
                                    f'{layout_guards.__name__}.checks_implied_by', f'{layout_guards.__name__}.sizes_of'])
def test_every_check_stays_after_an_error_of_the_recording(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*args: object) -> None:
        raise KeyError('gone')

    monkeypatch.setattr(skipping, '_lines', {})
    if broken.endswith('ShapeEnv'):
        from torch.fx.experimental import symbolic_shapes
        with monkeypatch.context() as absent:
            absent.delattr(symbolic_shapes, 'RuntimeAssert')
            with layout_guards.guards_of_the_model() as log:
                pass
        assert log.problem and torch.SymBool.__bool__.__module__ == 'torch'
    else:
        monkeypatch.setattr(broken, failing)
        head = Head(single).eval()
        actual = program._exported(head, (torch.zeros(2, 3, 480, 544),), DIMS, {})
        image = torch.randn(2, 3, 512, 480)
        torch.testing.assert_close(actual.module()(image), head(image), rtol=1e-5, atol=1e-5)
    assert any('dropping checks on layouts was skipped: ' in line for line in skipping.skipped())
