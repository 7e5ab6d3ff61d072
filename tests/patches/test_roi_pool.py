"""Test RoIPool as mmcv has it, and in mmdet's extractor, at regions and sizes that were not traced."""
from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from mmexport.compat import provide_mmcv_ext
from tests.patches.comparing import both, traced_once
from tests.regions import STRIDES, pyramid

pytestmark = pytest.mark.skipif(provide_mmcv_ext() == 'compiled', reason='compiled mmcv has it on CUDA only')


def extractor() -> nn.Module:
    from mmdet.models.roi_heads.roi_extractors import SingleRoIExtractor
    module: nn.Module = SingleRoIExtractor(dict(type='RoIPool', output_size=7), 6, list(STRIDES))
    return module


class Extracted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.extractor = extractor()

    def forward(self, one: Tensor, two: Tensor, three: Tensor, four: Tensor, rois: Tensor) -> Tensor:
        return self.extractor((one, two, three, four), rois)  # type: ignore[no-any-return]


def test_the_layer_equals_upstream() -> None:
    from mmcv.ops import RoIPool
    (feature, *_), rois, _ = pyramid(0, 160, 192, 2, 40)
    one, other = both('RoIPool', lambda: RoIPool((7, 5), 0.25)(feature, rois))
    assert torch.equal(one, other) and float(one.abs().max()) > 0


@pytest.mark.parametrize('scale', [None, 1.5])
def test_several_levels_equal_upstream(scale: float | None) -> None:
    maps, rois, _ = pyramid(1, 256, 256, 2, 60)
    module = extractor()
    one, other = both('RoIAlign', lambda: module(tuple(maps), rois, roi_scale_factor=scale))
    assert torch.equal(one, other)
    assert len(module.map_roi_levels(rois, 4).unique()) > 1  # type: ignore[operator]


def test_the_extractor_takes_other_sizes_and_regions() -> None:
    maps, rois, _ = pyramid(0, 192, 256, 2, 30)
    module = Extracted()
    traced = traced_once(['RoIAlign', 'RoIPool'], module, (*maps, rois))
    maps, rois, _ = pyramid(2, 256, 160, 3, 50)
    assert torch.equal(traced(*maps, rois), module(*maps, rois))
