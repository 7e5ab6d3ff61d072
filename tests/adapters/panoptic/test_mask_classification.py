"""Test panoptic and instance decisions, from tensor operations, against mmdet's own."""
from __future__ import annotations

import pytest
import torch

from mmexport.adapters import MaskClassification, build_adapter
from mmexport.adapters.panoptic.boxes import boxes_of
from mmexport.adapters.panoptic.evidence import instance_evidence
from mmexport.checker.compare import compare
from mmexport.checker.comparison import Comparison
from mmexport.inputs.synthetic import picture
from mmexport.verification.test_step import run_test_step_on
from tests.tiny import SHAPE, mask_classifier, seeded


def test_panoptic_thresholds_fall_as_upstreams_python_loop_does() -> None:
    """Ratios at the threshold, ties, void, things and stuff, filter_low_score: thirty random cases of each."""
    adapter = build_adapter(seeded('mask2former_r50'))
    assert isinstance(adapter, MaskClassification)
    generator = torch.Generator().manual_seed(0)
    for case in range(60):
        adapter.fusion.test_cfg.filter_low_score = bool(case % 2)
        cls_logits = torch.randn(2, 12, 134, generator=generator) + 9 * torch.nn.functional.one_hot(
            torch.randint(0, 134, (2, 12), generator=generator), 134)
        masks = 3 * torch.randn(2, 12, 10, 12, generator=generator)
        actual = adapter.panoptic(cls_logits, masks)[0]
        for image in range(2):
            expected = adapter.fusion.panoptic_postprocess(cls_logits[image], masks[image]).sem_seg[0]
            assert torch.equal(actual[image], expected)
    adapter.fusion.test_cfg.filter_low_score = True


def test_nothing_found_is_all_void() -> None:
    adapter = build_adapter(seeded('mask2former_r50'))
    assert isinstance(adapter, MaskClassification)
    actual = adapter.panoptic(torch.zeros(1, 5, 134), torch.zeros(1, 5, 4, 4))[0]
    assert (actual == 133).all()


def test_boxes_of_masks() -> None:
    masks = torch.zeros(1, 2, 6, 8, dtype=torch.bool)
    masks[0, 0, 2:4, 1:7] = True
    assert boxes_of(masks).tolist() == [[[1, 2, 7, 4], [0, 0, 0, 0]]]


@pytest.mark.parametrize('name', ['mask2former_r50', 'maskformer_r50'])
@pytest.mark.parametrize('panoptic', [False, True])
def test_instances_are_those_of_test_step(name: str, panoptic: bool) -> None:
    """No config of mmdet asks MaskFormer for instances; its head gives them."""
    adapter = build_adapter(mask_classifier(name, panoptic=panoptic, instance=True)[1])
    specs = [spec.as_dict() for spec in adapter.specs]
    image = picture((2, 3, *SHAPE[2:]), 3, adapter)
    with torch.no_grad():
        raw, recorded = adapter.run_with_evidence(image)
        expected = dict(zip([spec['name'] for spec in specs], adapter.final(raw, image), strict=True))
        read = adapter.read(run_test_step_on(adapter, image))
        evidence = adapter.evidence(raw, image, recorded)

    def compared(outputs: dict[str, torch.Tensor]) -> list[Comparison]:
        return compare(specs, expected, [outputs[spec['name']] for spec in specs], evidence, sample='', stage='')

    assert int(expected['num'].min()) > 5 and ('panoptic' in expected) is panoptic
    rows = compared(read)
    assert {row.output for row in rows} >= {'instances'} and all(row.passed for row in rows), rows
    assert not all(row.passed for row in compared({**read, 'labels': read['labels'] + 1}))


def test_a_pixel_that_may_flip_widens_the_score_of_its_instance() -> None:
    """A score is the mean over a mask: of three pixels one is a third, of three hundred it is nothing."""
    masks = torch.full((1, 2, 20, 20), -1.0)
    masks[0, 0, 0, :3] = torch.tensor([1.0, 0.8, 1e-6])
    masks[0, 1, :15] = 1.0
    masks[0, 1, 0, 0] = 1e-6
    top = dict(scores=torch.tensor([[0.9, 0.8]]), thing=torch.ones(1, 2, dtype=torch.bool), edge=torch.zeros(1))
    evidence = instance_evidence(masks, top, torch.zeros(1, 5, 4))
    small, large = evidence['row_slack'][0].tolist()
    without, with_it = (float(torch.tensor(values).sigmoid().mean()) for values in ([1.0, 0.8], [1.0, 0.8, 0.0]))
    assert small == pytest.approx(0.9 * (without - with_it) + 1e-4 * 0.9 * with_it, rel=0.05)
    assert large < 1e-3 < small
    assert evidence['mask_near'].sum() == 2 and not evidence['edge_rows'].any()
    masks[0, 0, 0, 1:3] = 1e-6
    assert instance_evidence(masks, top, torch.zeros(1, 5, 4))['edge_rows'].tolist() == [[True, False]], 'two of its three pixels may go'
