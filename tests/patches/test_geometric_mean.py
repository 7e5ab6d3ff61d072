"""Test the geometric mean of sigmoids against mmdet's Function, and that it leaves no call of Python in a trace."""
from __future__ import annotations

import io

import torch

from mmexport.compat import provide_mmcv_ext
from mmexport.patching import patched
from tests.patches.comparing import both

provide_mmcv_ext()


class Scores(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from mmdet.models.dense_heads import tood_head
        return tood_head.sigmoid_geometric_mean(x, x.flip(0))


def test_it_equals_upstream_also_where_sigmoids_are_tiny() -> None:
    x = torch.cat([torch.randn(50) * 5, torch.tensor([-200.0, -90.0, -30.0, 0.0, 30.0, 90.0, 200.0])])
    expected, actual = both('SigmoidGeometricMean', lambda: Scores()(x))
    assert float((expected - actual).abs().max()) < 1e-6
    visible = expected > 1e-15
    assert float(((expected - actual)[visible] / expected[visible]).abs().max()) < 1e-5


def test_a_trace_can_be_saved() -> None:
    with patched(['SigmoidGeometricMean']), torch.no_grad():
        traced = torch.jit.trace(Scores(), torch.randn(4, 3))
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    x = torch.randn(6, 2)
    assert torch.allclose(torch.jit.load(file)(x), Scores()(x), atol=1e-6)
