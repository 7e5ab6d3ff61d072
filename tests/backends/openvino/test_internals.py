"""Test what OpenVINO reads wrongly or not at all, against the eager module."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmexport.backends.openvino.internals import rewritten_for_openvino

openvino = pytest.importorskip('openvino')
SLICE = torch.ops.aten.slice.Tensor


class Part(nn.Module):
    def __init__(self, compute: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, image: Tensor) -> Any:
        return self.compute(image)


def exported(compute: Callable[[Tensor], Any]) -> Any:
    """Return a program whose second axis is open."""
    return torch.export.export(Part(compute), (torch.arange(24.0).view(4, 6),), strict=False,
                               dynamic_shapes=[{1: torch.export.Dim('width', min=2, max=64)}])


def answers(program: Any, image: Tensor) -> list[Tensor]:
    model = openvino.convert_model(rewritten_for_openvino(program))
    compiled = openvino.compile_model(model, 'CPU', {'INFERENCE_PRECISION_HINT': 'f32'})
    found = compiled([image.numpy()])
    return [torch.from_numpy(found[port]) for port in compiled.outputs]


@pytest.mark.parametrize('bounds', [(), (0, None, 2), (0, -2), (0, 1, None), (1, None, None, 2), (0, 1, 3)])
def test_slices_may_leave_bounds_out(bounds: tuple[Any, ...]) -> None:
    """As in the programs of torch 2.8, whose slices have no more arguments than the model's line."""
    program = exported(lambda image: SLICE(image, 0, 1, 3) + 0)
    for node in program.graph.find_nodes(op='call_function', target=SLICE):
        node.args = (node.args[0], *bounds)
    image = torch.arange(28.0).view(4, 7)
    actual, = answers(program, image)
    assert torch.equal(actual, SLICE(image, *bounds))


def test_remainders_of_sizes() -> None:
    def padded(image: Tensor) -> Tensor:
        return nn.functional.pad(image, (0, image.shape[1] % 2))

    for width in (6, 7):
        image = torch.arange(4.0 * width).view(4, width)
        actual, = answers(exported(padded), image)
        assert torch.equal(actual, padded(image))


def test_an_output_given_twice_stays_two() -> None:
    def twice(image: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return image + 1, (image + 1).clone(), image > 3, (image > 3).clone()

    image = torch.arange(28.0).view(4, 7)
    actual = answers(exported(twice), image)
    assert len(actual) == 4
    for one, expected in zip(actual, twice(image), strict=True):
        assert torch.equal(one.to(expected.dtype), expected)


def test_after_an_error_the_program_is_converted_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons: dict[str, str] = {}
    monkeypatch.setattr('mmexport.utils.skipped._lines', reasons)
    monkeypatch.setattr('mmexport.backends.openvino.internals._distinct_outputs', None)
    image = torch.arange(28.0).view(4, 7)
    actual, = answers(exported(lambda image: image * 2), image)
    assert torch.equal(actual, image * 2)
    assert list(reasons) == ['the rewriting of operators for OpenVINO']
