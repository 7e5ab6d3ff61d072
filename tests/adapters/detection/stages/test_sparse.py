"""Test the masks of QueryInst: those of test_step, and wrong ones fail."""
from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from mmexport.adapters import build_adapter
from mmexport.checker.rules.detection_rows import compare_detections
from mmexport.errors import ConfigError, UnsupportedModelError
from mmexport.inputs.synthetic import picture
from mmexport.verification.test_step import run_test_step_on
from tests.detectors import seeded_detector

pytestmark = pytest.mark.xdist_group('dense')


def test_wrong_masks_fail() -> None:
    adapter = build_adapter(seeded_detector('queryinst'))
    image = picture((2, 3, 96, 160), 3, adapter)
    with torch.no_grad():
        raw, recorded = adapter.run_with_evidence(image)
        expected = dict(zip([spec.name for spec in adapter.specs], adapter.final(raw, image), strict=True))
        evidence = adapter.evidence(raw, image, recorded)
        read = adapter.read(run_test_step_on(adapter, image))
        # Regions that are cut a tenth of their side beside.
        boxes, _, labels, query = adapter.best(raw, image, adapter.limit)
        aside = adapter._masks(raw, boxes + 0.1 * (boxes[..., 2:] - boxes[..., :2]).repeat(1, 1, 2), labels, query)
    assert compare_detections(expected, read, evidence, 1e-5)['beyond'] == 0
    assert float(evidence['mask_unsure'].float().mean()) < 0.05, 'few regions are in doubt'
    masks = expected['masks']
    for planted in (masks.roll(1, dims=1), masks.roll(1, dims=0), masks.roll(1, dims=3), -masks, aside):
        assert compare_detections(expected, {**expected, 'masks': planted}, evidence, 1e-4)['beyond'] > 0.5


def test_what_is_not_known_is_refused() -> None:
    model = copy.deepcopy(seeded_detector('queryinst'))

    class Head(type(model.roi_head)):  # type: ignore[misc]
        def _mask_forward(self, *args: Any) -> dict[str, Tensor]:
            return {'mask_preds': -super()._mask_forward(*args)['mask_preds']}

    model.roi_head.__class__ = Head
    with pytest.raises(UnsupportedModelError, match='Head decides by a _mask_forward of Head, which mmexport does not know'):
        build_adapter(model)
    with pytest.raises(ConfigError, match='asks for masks, and SparseRCNN has none'):
        build_adapter(seeded_detector('sparse_rcnn'), masks='paste')


def test_seeded_regions_lie_near_the_picture() -> None:
    """Six stages that each double a region end in boxes of ten times the picture, where rounding moves a corner by a pixel."""
    model = seeded_detector('queryinst')
    adapter = build_adapter(model, outputs='raw')
    sizes = model.rpn_head.init_proposal_bboxes.weight[:, 2:]
    assert float(sizes.std()) > 0.1, 'regions of several sizes'
    with torch.no_grad():
        boxes = adapter.raw(picture((1, 3, 128, 128), 3, adapter))[1]
    assert -64 < float(boxes.min()) and float(boxes.max()) < 192
    sides = boxes[..., 2:] - boxes[..., :2]
    assert float(sides.min()) < 32 and float(sides.max()) > 96, 'small and large ones'
