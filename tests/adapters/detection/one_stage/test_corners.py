"""Test CornerNet's pairs, what rounding may change of them, and that other pairs fail."""
from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mmexport.adapters import build_adapter
from mmexport.adapters.specs import LOGIT_TOLERANCE
from mmexport.checker.rules.detection_rows import compare_detections
from mmexport.compat.pytree import tree_leaves
from mmexport.errors import UnsupportedModelError
from mmexport.inputs.synthetic import picture
from tests.detectors import seeded_detector

pytestmark = pytest.mark.xdist_group('dense')
SIZE = (128, 160)


@torch.no_grad()
def decided(adapter: Any, raw: tuple[Tensor, ...], image: Tensor) -> dict[str, Tensor]:
    return dict(zip([spec.name for spec in adapter.specs], adapter.final(raw, image), strict=True))


@pytest.mark.parametrize('seed', range(4))
def test_rounding_changes_unsure_rows_only(seed: int) -> None:
    adapter, generator = build_adapter(seeded_detector('cornernet')), torch.Generator().manual_seed(seed)
    image = picture((2, 3, *SIZE), seed, adapter)
    with torch.no_grad():
        raw = adapter.raw(image)
    # Some tags lie at the threshold, and some scores tie with their neighbour.
    raw[0][:, :, 1::9, 1::7] = raw[0][:, :, 1::9, 2::7][..., :raw[0][:, :, 1::9, 1::7].shape[-1]]
    raw[3][:, :, ::5] = raw[2][:, :, ::5] + 0.5
    expected, evidence = decided(adapter, raw, image), adapter.evidence(raw, image, {})
    for _ in range(8):
        moved = tuple(part + 0.9 * LOGIT_TOLERANCE * float(part.abs().max()) * (2 * torch.rand(part.shape, generator=generator) - 1)
                      for part in raw)
        metrics = compare_detections(expected, decided(adapter, moved, image), evidence, 1e-4)['metrics']
        assert [metrics[name] for name in ('rows_lost', 'rows_new', 'rows_wrong')] == [0, 0, 0], metrics
    assert int(expected['num'].sum()) > 20 and int(evidence['unsure'].sum()) < 0.6 * int(expected['num'].sum())


@pytest.mark.parametrize('fault', [dict(distance_threshold=0.6), dict(local_maximum_kernel=1), dict(corner_topk=80)])
def test_other_pairs_are_told(fault: dict[str, Any]) -> None:
    adapter = build_adapter(seeded_detector('cornernet'))
    image = picture((2, 3, *SIZE), 3, adapter)
    with torch.no_grad():
        raw = adapter.raw(image)
    expected, evidence = decided(adapter, raw, image), adapter.evidence(raw, image, {})
    model = copy.copy(adapter.model)
    model._modules = {**model._modules, 'bbox_head': copy.copy(model.bbox_head)}
    model.bbox_head.test_cfg = copy.deepcopy(model.bbox_head.test_cfg)
    model.bbox_head.test_cfg.update(fault)
    wrong = decided(build_adapter(model), raw, image)
    metrics = compare_detections(expected, wrong, evidence, 1e-4)['metrics']
    assert sum(metrics[name] for name in ('rows_lost', 'rows_new', 'rows_wrong')) > 0, metrics


class Largest(TorchDispatchMode):
    """Record how many elements the largest result has."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.elements = max(self.elements, *(part.numel() for part in tree_leaves(result) if isinstance(part, Tensor)), 0)
        return result


def test_every_row_is_unsure_where_scores_saturate() -> None:
    """Comparing each corner with each other one took 270 GB for CornerNet at 383x511."""
    adapter = build_adapter(seeded_detector('cornernet'))
    image = picture((1, 3, 192, 256), 3, adapter)
    with torch.no_grad():
        raw = adapter.raw(image)
    raw[0].add_(200)
    raw[1].add_(200)
    with Largest() as largest:
        evidence = adapter.evidence(raw, image, {})
    assert largest.elements < 0.1 * raw[0].numel() ** 2
    assert bool(evidence['unsure'].all())


def test_what_upstream_does_not_know_is_refused() -> None:
    model = copy.deepcopy(seeded_detector('cornernet'))
    model.bbox_head.test_cfg.nms = dict(type='nms_rotated')
    with pytest.raises(UnsupportedModelError, match="has the type 'nms_rotated'"):
        build_adapter(model)
