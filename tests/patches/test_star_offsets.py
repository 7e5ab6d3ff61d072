"""Test VFNet's offsets, and deformable layers on maps that are smaller than their kernel."""
from __future__ import annotations

import pytest
import torch

from mmexport.adapters import build_adapter
from mmexport.backends.exported.program import exported_program
from mmexport.compat import provide_mmcv_ext
from mmexport.patching import patched
from tests.detectors import seeded_detector
from tests.patches.comparing import ROUNDING, both
from tests.programs import needs_program

provide_mmcv_ext()


def test_star_offsets_equal_upstreams() -> None:
    head = seeded_detector('vfnet').bbox_head
    for size in ((7, 5), (1, 3), (1, 1)):
        distances = torch.rand(2, 4, *size) * 40
        one, other = both('StarOffsets', lambda distances=distances: head.star_dcn_offset(distances, 0.1, 16))
        assert one.shape == (2, 18, *size)
        assert float((one - other).abs().max()) <= ROUNDING * float(one.abs().max())


@pytest.mark.parametrize('size', [(1, 1), (2, 5), (5, 2)])
def test_deformable_layers_take_maps_below_the_kernel_size(size: tuple[int, int]) -> None:
    from mmcv.ops import DeformConv2d
    torch.manual_seed(0)
    layer = DeformConv2d(8, 6, 3, padding=1).eval()
    x, offset = torch.randn(2, 8, *size), torch.randn(2, 18, *size) * 2
    one, other = both('DeformableConvolution', lambda: layer(x, offset))
    assert one.shape == other.shape == (2, 6, *size)
    assert float((one - other).abs().max()) <= 10 * ROUNDING * float(one.abs().max())


@pytest.mark.slow
@needs_program
@pytest.mark.parametrize('name', ['vfnet', 'reppoints'])
def test_programs_of_deforming_detectors_take_small_pictures(name: str) -> None:
    """Their last level has one cell for a picture of 128 pixels."""
    adapter, axes = build_adapter(seeded_detector(name), outputs='raw'), ('batch', 'height', 'width')
    example = torch.randn(1, 3, 128, 160)
    adapter.guard_inputs(example, axes)
    with patched('auto'), torch.no_grad():
        program = exported_program(adapter, example, axes)
        small = torch.randn(2, 3, 97, 64)
        for one, other in zip(program.module()(small), adapter(small), strict=True):
            assert float((one - other).abs().max()) <= 1e-4 * float(other.abs().max())
