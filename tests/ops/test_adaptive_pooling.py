"""Test averaging matrices, and maxima by index, against torch's own adaptive pooling, at sizes that divide and sizes that do not."""
from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmexport.ops.op import with_forms
from mmexport.patching import patched
from tests.programs import needs_program


@pytest.mark.parametrize('cells', [1, 2, 3, 6, (2, 5), (None, 3)])
@pytest.mark.parametrize('size', [(6, 6), (7, 11), (4, 5), (64, 33)])
def test_matrices_pool_as_torch_does(cells: object, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, *size)
    expected = nn.AdaptiveAvgPool2d(cells)(x)  # type: ignore[arg-type]
    with patched(['AdaptivePooling']) as rows, with_forms(adaptive_pooling='matrix'):
        assert rows[0].skipped is None
        actual = nn.AdaptiveAvgPool2d(cells)(x)  # type: ignore[arg-type]
    assert actual.shape == expected.shape
    assert float((actual - expected).abs().max()) <= 1e-6


@pytest.mark.parametrize('cells', [1, 3, (2, 5), (None, 3), (7, 11)])
@pytest.mark.parametrize('size', [(6, 6), (7, 11), (4, 5), (64, 33)])
def test_maxima_are_those_of_torch(cells: object, size: tuple[int, int]) -> None:
    x = torch.randn(2, 3, *size)
    expected = nn.AdaptiveMaxPool2d(cells)(x)  # type: ignore[arg-type]
    with patched(['AdaptivePooling']), with_forms(adaptive_pooling='matrix'):
        actual = nn.AdaptiveMaxPool2d(cells)(x)  # type: ignore[arg-type]
        _, places = F.adaptive_max_pool2d(x, 2, return_indices=True)
    assert torch.equal(actual, expected)
    assert torch.equal(places, F.adaptive_max_pool2d(x, 2, return_indices=True)[1])


def test_without_a_preference_torch_pools_itself() -> None:
    with patched(['AdaptivePooling']):
        traced = torch.jit.trace(lambda x: F.adaptive_avg_pool2d(x, 3), torch.randn(1, 2, 7, 9))
    assert 'aten::adaptive_avg_pool2d' in {node.kind() for node in traced.inlined_graph.nodes()}


class Pool(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(x, (2, 6))


class HalfAsManyMaxima(nn.Module):
    """Pool as SAN pools its masks: to a size that follows the input's."""

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_max_pool2d(x, (x.shape[-2] // 2, x.shape[-1] // 2))


@needs_program
@pytest.mark.parametrize('module', [Pool, HalfAsManyMaxima])
def test_an_exported_program_pools_any_size(module: type[nn.Module]) -> None:
    dims = {2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}
    with patched(['AdaptivePooling']), with_forms(adaptive_pooling='matrix'):
        program = torch.export.export(module(), (torch.randn(2, 3, 30, 34),), dynamic_shapes=(dims,), strict=False)
    for size in ((30, 34), (11, 7), (4, 5)):
        x = torch.randn(2, 3, *size)
        assert torch.allclose(program.module()(x), module()(x), atol=1e-6)
