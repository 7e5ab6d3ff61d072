"""Test CenterNet's local maxima, and what rounding may change of them."""
from __future__ import annotations

import pytest
import torch

from mmexport.adapters import build_adapter
from mmexport.checker.rules.detection_rows import compare_detections
from tests.detectors import seeded_detector

pytestmark = pytest.mark.xdist_group('dense')


@pytest.mark.parametrize('seed', range(20))
def test_rounding_changes_unsure_rows_only(seed: int) -> None:
    """Scores on a grid tie with their neighbours and at the cut; rounding decides there, and at no other row."""
    adapter, generator = build_adapter(seeded_detector('centernet')), torch.Generator().manual_seed(seed)
    image = torch.zeros(2, 3, 96, 128)
    # Peaks on little ground, some of them as two neighbours that tie.
    heat = 0.1 * torch.rand(2, 12, 24, 32, generator=generator)
    grid = 0.3 + 0.001 * torch.randint(0, 300, (2, 12, 24, 32), generator=generator)
    peaks = torch.rand(heat.shape, generator=generator) < 0.008
    heat = torch.where(peaks, grid, heat)
    double = peaks & (torch.rand(heat.shape, generator=generator) < 0.05)
    heat = torch.where(double.roll(1, dims=3), heat.roll(1, dims=3), heat)
    sizes, offsets = (torch.rand(2, 2, 24, 32, generator=generator) * scale for scale in (8.0, 1.0))
    expected, evidence = decided(adapter, heat, sizes, offsets, image)
    moved = heat * (1 + 2e-6 * torch.randn(heat.shape, generator=generator))
    actual, _ = decided(adapter, moved, sizes, offsets, image)
    result = compare_detections(expected, actual, evidence, 1e-4)
    assert result.get('problem') is None and result['beyond'] == 0, result
    assert int(evidence['unsure'].sum()) < 60
    # A peak that is lost is none of rounding.
    lost = heat.clone()
    sure = (~evidence['unsure'][0]).nonzero()[0, 0]
    lost[lost == expected['scores'][0, sure]] = 0.0
    assert compare_detections(expected, decided(adapter, lost, sizes, offsets, image)[0], evidence, 1e-4)['beyond'] > 0


def decided(adapter, heat, sizes, offsets, image):  # type: ignore[no-untyped-def]
    raw = heat, sizes, offsets
    outputs = dict(zip([spec.name for spec in adapter.specs], adapter.final(raw, image), strict=True))
    return outputs, adapter.evidence(raw, image, {})
