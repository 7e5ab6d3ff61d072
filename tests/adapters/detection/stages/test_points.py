"""Check the masks that PointRend refines: what rounding changes is excused, and nothing else."""
from __future__ import annotations

import copy
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from mmexport.adapters import build_adapter
from mmexport.adapters.base import Adapter
from mmexport.adapters.detection.stages.masks import of_stages
from mmexport.adapters.detection.stages.points import Refined, Step, doubts, refined, sides
from mmexport.adapters.detection.stages.regions import rois_of
from mmexport.checker.rules.detection_rows import compare_detections
from mmexport.inputs.synthetic import picture
from tests.detectors import seeded_detector

pytestmark = pytest.mark.xdist_group('two_stage')


@cache
def model() -> nn.Module:
    """Return the small PointRend; logits at points differ from those that they replace."""
    copied = copy.deepcopy(seeded_detector('point_rend'))
    with torch.no_grad():
        copied.roi_head.point_head.fc_logits.weight.mul_(10.0)
    return copied


def answers(adapter: Adapter, image: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor], dict[str, Tensor]]:
    names = [spec.name for spec in adapter.specs]
    with torch.no_grad():
        raw, recorded = adapter.run_with_evidence(image)
        return raw, dict(zip(names, adapter.final(raw, image), strict=True)), adapter.evidence(raw, image, recorded)


def test_what_rounding_changes_is_excused() -> None:
    adapter = build_adapter(model())
    raw, expected, evidence = answers(adapter, picture((1, 3, 128, 160), 3, adapter))
    roi_head, features, boxes = adapter.model.roi_head, adapter.groups(raw)[1], expected['boxes']
    with torch.no_grad():
        coarse = of_stages(roi_head, features, rois_of(boxes))[0]['mask_preds']
        before = refined(roi_head, features, boxes, expected['labels'], coarse).masks
    assert torch.equal(before[None], expected['masks'])
    allowed = evidence['mask_slack'][0][:, None, None] + 1e-4 * float(before.abs().max())
    near, elsewhere = evidence['mask_near'][0], 0
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        moved = coarse + 5e-5 * float(before.abs().max()) * (2 * torch.rand(coarse.shape, generator=generator) - 1)
        with torch.no_grad():
            after = refined(roi_head, features, boxes, expected['labels'], moved).masks
        assert ((after - before).abs() <= allowed)[~near].all(), seed
        elsewhere += int(((after - before).abs() > allowed).sum())
    assert elsewhere > 0, 'rounding chose other points'
    assert 0 < float(near.float().mean()) < 0.3


def test_wrong_masks_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = build_adapter(model())
    image = picture((2, 3, 128, 160), 3, adapter)
    raw, expected, evidence = answers(adapter, image)
    masks = expected['masks']
    planted = [masks.roll(1, dims=1), masks.roll(1, dims=0), masks.roll(1, dims=3), -masks]
    cfg = adapter.model.roi_head.test_cfg
    for setting, value in (('subdivision_num_points', 14 * 14 // 2), ('subdivision_num_points', 14 * 14 * 2)):
        with monkeypatch.context() as patch, torch.no_grad():
            patch.setitem(cfg, setting, value)
            planted.append(adapter.final(raw, image)[4])
    for number, wrong in enumerate(planted):
        assert compare_detections(expected, {**expected, 'masks': wrong}, evidence, 1e-4)['beyond'] > 0.5, number


@pytest.mark.parametrize('seed', range(10))
def test_unknown_cells_are_those_that_another_order_changes(seed: int) -> None:
    """A step on 4 x 4 cells takes 5 of them; logits that nearly tie with the fifth may be taken instead."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.rand(1, 16, generator=generator) + 0.1
    order = logits.abs().argsort(dim=1)
    logits[0, order[0, 5]] = -logits[0, order[0, 4]] * (1 + 1e-6)
    cells = logits.abs().argsort(dim=1)[:, :5]
    base = Refined(logits.scatter(1, cells, 2.0).unflatten(1, (4, 4)), [Step(logits, cells, (4, 4))])
    slack, unknown = doubts(base, [base])
    assert set(unknown.flatten().nonzero()[:, 0].tolist()) == set(order[0, 4:6].tolist())
    assert float(slack) == 0


def test_a_step_that_computes_every_cell_leaves_nothing_unknown() -> None:
    logits, cells = torch.rand(2, 4), torch.arange(4).expand(2, 4)
    base = Refined(torch.rand(2, 2, 2), [Step(logits, cells, (2, 2))])
    assert not doubts(base, [base])[1].any()
    assert doubts(Refined(base.masks, [None]), [Refined(base.masks + 0.5, [None])])[0].tolist() == pytest.approx([0.5, 0.5])


def test_sizes_of_the_steps() -> None:
    assert sides(model().roi_head) == [(7, 7), (14, 14), (28, 28), (56, 56), (112, 112)]
