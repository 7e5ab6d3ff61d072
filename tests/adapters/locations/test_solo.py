"""Check the instances of SOLO's relatives: those of test_step, with rounding excused, and wrong ones not."""
from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mmexport.adapters import build_adapter
from mmexport.adapters.base import Adapter
from mmexport.adapters.locations import solo
from mmexport.adapters.specs import LOGIT_TOLERANCE
from mmexport.checker.rules.instance_rows import compare_instances
from mmexport.errors import UnsupportedModelError
from mmexport.inputs.synthetic import picture
from mmexport.verification.test_step import run_test_step_on
from tests.detectors import LOCATIONS, exported, seeded_detector, tiny_detector

pytestmark = pytest.mark.xdist_group('locations')


def answers(adapter: Adapter, image: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor], dict[str, Tensor]]:
    with torch.no_grad():
        raw = adapter.raw(image)
        return raw, named(adapter, adapter.final(raw, image)), adapter.evidence(raw, image, {})


def named(adapter: Adapter, outputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
    return dict(zip([spec.name for spec in adapter.specs], outputs, strict=True))


@pytest.mark.parametrize('name', LOCATIONS)
def test_instances_are_those_of_mmdet(name: str) -> None:
    adapter = build_adapter(seeded_detector(name))
    for size in ((128, 160), (192, 96) if name == 'solov2' else (161, 97)):
        image = picture((2, 3, *size), 3, adapter)
        _, expected, evidence = answers(adapter, image)
        read = adapter.read(run_test_step_on(adapter, image))
        result = compare_instances(expected, read, evidence, 1e-5)
        assert 'problem' not in result and result['beyond'] == 0 and result['metrics']['rows'] > 20, result
        filled = expected['masks'].float().mean(dim=(2, 3))
        assert int(((filled > 0.02) & (filled < 0.98)).sum()) > 10, 'masks are neither empty nor all of the picture'


@pytest.mark.parametrize(('name', 'size'), [('solo', (128, 160)), ('solo', (161, 97)), ('solov2', (128, 160))])
def test_instances_of_padded_pictures_are_those_of_mmdet(name: str, size: tuple[int, int]) -> None:
    adapter = build_adapter(seeded_detector(name), img_shape=True)
    inputs = adapter.network_inputs(picture((2, 3, *size), 3, adapter))
    inside = [int(0.75 * size[0]), int(0.6 * size[1])]
    assert inputs[1].tolist() == [inside, [*size]]
    with torch.no_grad():
        raw, recorded = adapter.run_with_evidence(*inputs)
        expected = named(adapter, adapter.final(raw, *inputs))
        evidence = adapter.evidence(raw, inputs[0], recorded)
        whole = named(adapter, adapter.final(raw, inputs[0]))
        called = named(adapter, adapter(*adapter.inputs_of(picture((2, 3, *size), 3, adapter))))
    assert all(torch.equal(called[name], tensor) for name, tensor in expected.items())
    read = adapter.read(run_test_step_on(adapter, *inputs))
    result = compare_instances(expected, read, evidence, 1e-5)
    assert 'problem' not in result and result['beyond'] == 0 and result['metrics']['rows'] > 20, result
    assert not expected['masks'][0, :, inside[0]:].any() and whole['masks'][0, :, inside[0]:].any()
    assert compare_instances(expected, whole, evidence, 1e-5)['beyond'] > 0, 'masks that go into the padding are noticed'


@pytest.mark.parametrize('name', LOCATIONS)
def test_what_rounding_changes_is_excused(name: str) -> None:
    adapter = build_adapter(seeded_detector(name))
    image = picture((1, 3, 128, 160), 5, adapter)
    raw, expected, evidence = answers(adapter, image)
    changed = 0
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        # Half of what is allowed: kernels and features of SOLOv2 are multiplied.
        moved = tuple(level + 0.5 * LOGIT_TOLERANCE * float(level.abs().max()) * (2 * torch.rand(level.shape, generator=generator) - 1)
                      for level in raw)
        actual = named(adapter, adapter.final(moved, image))
        result = compare_instances(expected, actual, evidence, LOGIT_TOLERANCE)
        assert 'problem' not in result and result['beyond'] == 0, (seed, result)
        changed += int(not torch.equal(actual['masks'], expected['masks']))
    assert changed > 0, 'nothing was decided otherwise'


@pytest.mark.parametrize('name', LOCATIONS)
def test_wrong_instances_fail(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = build_adapter(seeded_detector(name))
    image = picture((2, 3, 128, 160), 3, adapter)
    raw, expected, evidence = answers(adapter, image)
    masks = expected['masks']

    def wrong(**changes: Tensor) -> bool:
        result = compare_instances(expected, {**expected, **changes}, evidence, LOGIT_TOLERANCE)
        return 'problem' in result or result['beyond'] > 0.02

    def with_setting(**settings: Any) -> dict[str, Tensor]:
        head = copy.copy(adapter.model.mask_head)
        head.test_cfg = copy.deepcopy(head.test_cfg)
        head.test_cfg.update(settings)
        other = copy.copy(adapter)
        other._modules = {**other._modules, 'model': copy.copy(adapter.model)}
        other.model._modules = {**other.model._modules, 'mask_head': head}
        return named(adapter, other.final(raw, image))

    assert not wrong()
    assert wrong(masks=masks.roll(1, dims=0)) and wrong(masks=masks.roll(1, dims=1)) and wrong(masks=masks.roll(2, dims=3))
    assert wrong(labels=(expected['labels'] + 1) % 12) and wrong(scores=expected['scores'] * 0.999)
    assert wrong(num=expected['num'] - 5), 'rows that do not count are zero'
    thr = float(adapter.model.mask_head.test_cfg.mask_thr)
    fewer, later = int(expected['num'].min()) - 3, float(expected['scores'][0, 10])
    for settings in (dict(max_per_img=fewer), dict(sigma=1.0), dict(mask_thr=thr + 0.02), dict(filter_thr=later), dict(nms_pre=5)):
        assert wrong(**with_setting(**settings)), settings
    monkeypatch.setattr(solo, 'decayed', lambda scores, *_: scores)
    assert wrong(**named(adapter, adapter.final(raw, image))), 'no suppression'
    monkeypatch.undo()
    monkeypatch.setattr(solo.F, 'max_pool2d', lambda level, *_, **__: torch.nn.functional.pad(level, (0, 1, 0, 1)))
    assert wrong(**named(adapter, adapter.final(raw, image))), 'all locations are peaks'


def test_a_picture_without_instances() -> None:
    adapter = build_adapter(copy.deepcopy(seeded_detector('solo')))
    adapter.model.mask_head.test_cfg.score_thr = 0.999
    image = picture((2, 3, 128, 160), 3, adapter)
    _, expected, evidence = answers(adapter, image)
    read = adapter.read(run_test_step_on(adapter, image))
    for name, tensor in expected.items():
        assert not tensor.any() and torch.equal(tensor, read[name].to(tensor.dtype)), name
    assert evidence['maybe'].shape == (2, 1, 3) and not evidence['edge_rows'].any()
    assert compare_instances(expected, read, evidence, 1e-5)['beyond'] == 0


def test_what_is_not_known_is_refused() -> None:
    model = copy.deepcopy(seeded_detector('solo'))
    model.mask_head.test_cfg.kernel = 'linear'
    with pytest.raises(UnsupportedModelError, match="test_cfg has kernel='linear'"):
        build_adapter(model)

    class Head(type(model.mask_head)):  # type: ignore[misc]
        def _predict_by_feat_single(self, *args: Any, **kwargs: Any) -> Any:
            return super()._predict_by_feat_single(*args, **kwargs)

    model.mask_head.__class__ = Head
    with pytest.raises(UnsupportedModelError, match='Head decides by methods of Head, SOLOHead, which mmexport does not know'):
        build_adapter(model)


@pytest.mark.slow
def test_solov2_goes_to_torchscript(tmp_path: Path) -> None:
    report = exported('solov2', tiny_detector('solov2', backends=['torchscript']), tmp_path)
    assert report.passed, report.reasons
    rows = [row for check in report.checks for row in check.rows if row.output == 'instances' and not row.again]
    assert len(rows) > 4 and all(row.metrics['rows'] >= 20 for row in rows)
