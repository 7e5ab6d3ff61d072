"""Test masks that are pasted into the picture inside the graph."""
from __future__ import annotations

import copy
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mmexport.adapters import build_adapter
from mmexport.adapters.detection.pasting import pasted
from mmexport.adapters.detection.stages import pasted_masks
from mmexport.checker.rules.detection_rows import compare_detections
from mmexport.errors import ConfigError
from mmexport.inputs.synthetic import picture
from mmexport.model.config import export_section
from mmexport.verification.test_step import run_test_step_on
from tests.detectors import exported, seeded_detector, tiny_detector

pytestmark = pytest.mark.xdist_group('two_stage')


def quick(backend: str) -> Any:
    return tiny_detector('mask_rcnn', backends=[backend], outputs=dict(masks='paste'), verify=dict(shapes=[(161, 97)], noises=1, batch=2))


# QueryInst does not cut its boxes at the border, and mmdet cannot paste a mask whose box lies beyond it, as seeded weights give them.
@pytest.mark.parametrize(('name', 'img_shape'), [*itertools.product(['mask_rcnn', 'cascade_mask_rcnn', 'point_rend'], [False, True]),
                                                 ('queryinst', False)])
def test_masks_are_those_of_test_step(name: str, img_shape: bool) -> None:
    adapter = build_adapter(seeded_detector(name), masks='paste', img_shape=img_shape)
    inputs = adapter.network_inputs(picture((2, 3, 97, 161), 3, adapter))
    with torch.no_grad():
        raw, recorded = adapter.run_with_evidence(*inputs)
        expected = dict(zip([spec.name for spec in adapter.specs], adapter.final(raw, *inputs), strict=True))
        evidence = adapter.evidence(raw, inputs[0], recorded)
        read = adapter.read(run_test_step_on(adapter, *inputs))
    assert expected['masks'].dtype == torch.uint8 and expected['masks'].shape[2:] == (97, 161)
    assert float(expected['masks'].float().mean()) > 0.01 and int(expected['num'].min()) > 20
    result = compare_detections(expected, read, evidence, 1e-5)
    assert result.get('problem') is None and result['beyond'] == 0, result
    of_masks = evidence['mask_near'] & (expected['masks'].sum(dim=(2, 3)) > 0)[..., None, None]
    # Rounding also chooses the points that PointRend computes again.
    assert float(of_masks.float().mean()) < (0.02 if name == 'point_rend' else 0.01), 'few pixels are in doubt'
    wrong = copy.deepcopy(expected)
    row = int(expected['masks'][0].sum(dim=(1, 2)).argmax())
    wrong['masks'][0, row] = wrong['masks'][0, row].roll(1, dims=1)
    assert compare_detections(expected, wrong, evidence, 1e-4)['beyond'] > 0, 'a mask one pixel off'


def test_rows_that_do_not_count_have_no_masks() -> None:
    """Their boxes are zero, and evidence that shrinks them must not turn them inside out."""
    model = copy.deepcopy(seeded_detector('mask_rcnn'))
    model.roi_head.test_cfg.score_thr = 0.97
    adapter = build_adapter(model, masks='paste')
    image = picture((2, 3, 97, 161), 3, adapter)
    with torch.no_grad():
        raw, recorded = adapter.run_with_evidence(image)
        expected = dict(zip([spec.name for spec in adapter.specs], adapter.final(raw, image), strict=True))
        evidence = adapter.evidence(raw, image, recorded)
        read = adapter.read(run_test_step_on(adapter, image))
    counts = expected['num'].tolist()
    assert all(0 < count < 35 for count in counts), counts
    assert not any(masks[count:].any() for masks, count in zip(expected['masks'], counts, strict=True))
    assert compare_detections(expected, read, evidence, 1e-5)['beyond'] == 0


@pytest.mark.slow
def test_a_file_pastes_them(tmp_path: Path) -> None:
    report = exported('mask_rcnn', quick('torchscript'), tmp_path)
    assert report.passed, report.reasons
    masks = report.artifacts[0].manifest['outputs'][4]
    assert (masks['name'], masks['dtype'], list(masks['axes'])) == ('masks', 'uint8', ['batch', 'row', 'height', 'width'])


@pytest.mark.slow
def test_masks_half_a_pixel_off_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def planted(masks: Tensor, boxes: Tensor, height: int, width: int) -> Tensor:
        return pasted(masks, boxes + 0.5 * torch.jit.is_tracing(), height, width)

    monkeypatch.setattr(pasted_masks, 'pasted', planted)
    report = exported('mask_rcnn', quick('torchscript'), tmp_path)
    assert report.passed is False
    assert any('detections' in reason for reason in report.reasons), report.reasons


def test_what_has_no_masks_is_refused() -> None:
    with pytest.raises(ConfigError, match="asks for masks, and FasterRCNN has none"):
        build_adapter(seeded_detector('faster_rcnn'), masks='paste')
    with pytest.raises(ConfigError, match='known for the tasks .*two stages.*, and this is detection: leave it out'):
        build_adapter(seeded_detector('atss'), masks='paste')
    with pytest.raises(ConfigError, match="is 'past'.*did you mean paste"):
        export_section(tiny_detector('mask_rcnn', outputs=dict(masks='past')))
