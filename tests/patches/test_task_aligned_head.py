"""Test the forward of TOOD's head against mmdet's, with both types of anchors."""
from __future__ import annotations

import copy

import pytest
import torch

from mmexport.compat import provide_mmcv_ext
from mmexport.patching import patched
from tests.detectors import seeded_detector
from tests.patches.comparing import ROUNDING, both

provide_mmcv_ext()
pytestmark = pytest.mark.xdist_group('dense')


@pytest.mark.parametrize('anchors', ['anchor_free', 'anchor_based'])
def test_it_equals_upstream(anchors: str) -> None:
    from mmdet.models.task_modules.coders import DeltaXYWHBBoxCoder
    head = copy.deepcopy(seeded_detector('tood').bbox_head)
    head.anchor_type, head.bbox_coder = anchors, DeltaXYWHBBoxCoder()
    features = [torch.randn(3, head.in_channels, *size) for size in ((16, 20), (8, 10), (4, 5), (2, 3), (1, 2))]
    one, other = both('TaskAlignedHead', lambda: torch.cat([part.flatten() for group in head(features) for part in group]))
    assert float((one - other).abs().max()) <= ROUNDING * float(one.abs().max())


class Level(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = seeded_detector('tood').bbox_head

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores, boxes = self.head([x])
        return scores[0], boxes[0]


def test_a_trace_takes_another_batch() -> None:
    level, x = Level().eval(), torch.randn(3, 64, 7, 6)
    with patched(['TaskAlignedHead', 'SigmoidGeometricMean', 'DeformableConvolution', 'AdaptivePooling']), torch.no_grad():
        traced = torch.jit.trace(level, torch.randn(1, 64, 4, 5), check_trace=False)
        expected = level(x)
    for one, other in zip(traced(x), expected, strict=True):
        assert one.shape[0] == 3
        assert float((one - other).abs().max()) <= ROUNDING * float(other.abs().max())
